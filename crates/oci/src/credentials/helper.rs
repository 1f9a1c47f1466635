//! Programs that know credentials: docker's credential helpers.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::credential::{Credential, CredentialError, MAX_CONFIG_JSON};

/// The user name by which a helper says that its secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// The program of a helper: a path if the helpers' own directory has it, else a name for `PATH`.
pub(super) fn program(helper_directory: Option<&Path>, helper: &str) -> PathBuf {
    let name = format!("docker-credential-{helper}");
    let own = helper_directory.map(|directory| directory.join(&name));
    own.filter(|file| file.is_file()).unwrap_or_else(|| name.into())
}

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
    let (success, answer) = speak(program, helper, registry, "get", registry, timeout).await?;
    if !success {
        return match knows_none(&answer) {
            true => Ok(None),
            false => Err(fail(failure(&answer))),
        };
    }
    read_answer(&answer).map_err(fail)
}

/// The credential in a helper's answer. The error is the fault of that answer.
pub(crate) fn read_answer(answer: &[u8]) -> Result<Option<Credential>, String> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "Username")]
        username: String,
        #[serde(rename = "Secret")]
        secret: String,
    }
    // The answer holds a secret, so the message must not quote it.
    let Answer { username, secret } =
        serde_json::from_slice(answer).map_err(|_| "its answer is not JSON as agreed".to_owned())?;
    Ok(match (username.as_str(), secret.is_empty()) {
        (_, true) => None,
        (TOKEN_USER, _) => Some(Credential::IdentityToken(secret)),
        _ => Some(Credential::Basic {
            username,
            password: secret,
        }),
    })
}

/// The action that a helper is told to take on its credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// To keep some.
    Store,
    /// To forget some.
    Erase,
}

/// Runs `docker-credential-<helper> store` or `erase`; whether it had something to do.
pub(super) async fn order_helper(
    program: &Path,
    helper: &str,
    registry: &str,
    order: Order,
    question: &str,
    timeout: Duration,
) -> Result<bool, CredentialError> {
    let action = match order {
        Order::Store => "store",
        Order::Erase => "erase",
    };
    let (success, answer) = speak(program, helper, registry, action, question, timeout).await?;
    match success {
        true => Ok(true),
        false if order == Order::Erase && knows_none(&answer) => Ok(false),
        false => Err(CredentialError::Helper {
            helper: helper.to_owned(),
            registry: registry.to_owned(),
            reason: failure(&answer),
        }),
    }
}

/// The protocol has no error codes; all helpers share this sentence for "none".
fn knows_none(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("credentials not found")
}

fn failure(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    format!("it failed: {}", text.trim().chars().take(200).collect::<String>())
}

/// Runs a helper, and tells it something.
async fn speak(
    program: &Path,
    helper: &str,
    registry: &str,
    action: &str,
    question: &str,
    timeout: Duration,
) -> Result<(bool, Vec<u8>), CredentialError> {
    let fail = |reason: String| CredentialError::Helper {
        helper: helper.to_owned(),
        registry: registry.to_owned(),
        reason,
    };
    if helper.contains('/') {
        return Err(fail("its name must not contain a slash".to_owned()));
    }
    let mut command = tokio::process::Command::new(program);
    command.arg(action);
    tokio::time::timeout(timeout, ask(command, question.as_bytes()))
        .await
        .map_err(|_| fail(format!("no answer within {timeout:?}")))?
        .map_err(|error| fail(error.to_string()))
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
