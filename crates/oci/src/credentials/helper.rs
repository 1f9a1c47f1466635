//! Programs that know credentials: docker's credential helpers.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::credential::{Credential, CredentialError, MAX_CONFIG_JSON};

/// The user name by which a helper says that its secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// Asks `docker-credential-<helper> get`; `None` if it says that it knows none.
pub(super) async fn run_helper(
    program: &Path,
    helper: &str,
    registry: &str,
    timeout: Duration,
) -> Result<Option<Credential>, CredentialError> {
    let fail = |reason: String| CredentialError::Helper {
        helper: helper.to_owned(),
        registry: registry.to_owned(),
        reason,
    };
    if helper.contains('/') {
        return Err(fail("its name must not contain a slash".to_owned()));
    }
    let (success, answer) = tokio::time::timeout(timeout, ask_helper(program, registry))
        .await
        .map_err(|_| fail(format!("no answer within {timeout:?}")))?
        .map_err(|error| fail(error.to_string()))?;
    if !success {
        let text = String::from_utf8_lossy(&answer);
        let text = text.trim();
        // The protocol has no error codes; all helpers share this sentence for "none".
        return if text.contains("credentials not found") {
            Ok(None)
        } else {
            Err(fail(format!(
                "it failed: {}",
                text.chars().take(200).collect::<String>()
            )))
        };
    }
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "Username")]
        username: String,
        #[serde(rename = "Secret")]
        secret: String,
    }
    // The answer holds a secret, so the message must not quote it.
    let Answer { username, secret } =
        serde_json::from_slice(&answer).map_err(|_| fail("its answer is not JSON as agreed".to_owned()))?;
    Ok(match (username.as_str(), secret.is_empty()) {
        (_, true) => None,
        (TOKEN_USER, _) => Some(Credential::IdentityToken(secret)),
        _ => Some(Credential::Basic {
            username,
            password: secret,
        }),
    })
}

async fn ask_helper(program: &Path, registry: &str) -> std::io::Result<(bool, Vec<u8>)> {
    let mut command = tokio::process::Command::new(program);
    command.arg("get");
    ask(command, registry.as_bytes()).await
}

/// Runs a program and tells it something; whether it succeeded, and what it printed.
pub(super) async fn ask(
    mut command: tokio::process::Command,
    question: &[u8],
) -> std::io::Result<(bool, Vec<u8>)> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read its input may close it first.
        let _ = stdin.write_all(question).await;
    }
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_CONFIG_JSON).read_to_end(&mut answer).await?;
    }
    Ok((child.wait().await?.success(), answer))
}
