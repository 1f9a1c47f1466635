//! The kubelet's credential providers: programs that exchange what a machine is for a password that lasts some hours.
//!
//! The kubelet asks them when it pulls. A lazy image is read for as long as it runs, so Xebec must ask them again
//! while it reads. It takes the same configuration as the kubelet (`--image-credential-provider-config`,
//! `--image-credential-provider-bin-dir`), and the programs are spoken to in the same way. They are run anew whenever
//! [`crate::auth`] wants to know, which is every few minutes at most, so the times for which the kubelet may keep their
//! answers are not needed.
//!
//! Source: Kubernetes, "Configure a kubelet image credential provider", and the API `credentialprovider.kubelet.k8s.io/v1`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::credential::{Credential, CredentialError, read_bytes};
use super::helper::ask;

/// Where the kubelet has its configuration of credential providers, and their programs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// The file `CredentialProviderConfig`, YAML or JSON.
    pub config: PathBuf,
    /// The directory of the programs.
    pub directory: PathBuf,
}

/// `CredentialProviderConfig`, `kubelet.config.k8s.io/v1` and its predecessors.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    kind: String,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    name: String,
    match_images: Vec<String>,
    api_version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    /// It wants a token of the pod's service account, which only the kubelet can get.
    #[serde(default)]
    token_attributes: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    kind: &'static str,
    api_version: &'a str,
    image: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    kind: String,
    #[serde(default)]
    auth: Option<BTreeMap<String, Login>>,
}

#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

impl ProviderSettings {
    /// The credential of the first provider that is for this image and has one.
    pub(super) async fn look_up(
        &self,
        registry: &str,
        repository: &str,
        timeout: Duration,
    ) -> Result<Option<Credential>, CredentialError> {
        let image = format!("{registry}/{repository}");
        let Some(bytes) = read_bytes(&self.config).await? else {
            return Ok(None);
        };
        let config = parse(&bytes).map_err(|reason| CredentialError::Parse {
            path: self.config.clone(),
            reason,
        })?;
        for provider in &config.providers {
            if !provider
                .match_images
                .iter()
                .any(|pattern| is_match(pattern, &image))
            {
                continue;
            }
            if provider.token_attributes.is_some() {
                tracing::warn!(
                    provider = provider.name,
                    image,
                    "not asked: it wants the token of a pod's service account, which only the kubelet has"
                );
                continue;
            }
            let found = provider.ask(&self.directory, &image, timeout).await;
            let found = found.map_err(|reason| CredentialError::Provider {
                provider: provider.name.clone(),
                image: image.clone(),
                reason,
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Config, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    let config: Config = serde_saphyr::from_str(text)
        .map_err(|error| format!("it is not the kubelet's configuration of credential providers: {error}"))?;
    match config.kind.as_str() {
        "CredentialProviderConfig" => Ok(config),
        other => Err(format!("its kind is {other:?}, not CredentialProviderConfig")),
    }
}

impl Provider {
    async fn ask(
        &self,
        directory: &Path,
        image: &str,
        timeout: Duration,
    ) -> Result<Option<Credential>, String> {
        if self.name.contains('/') || self.name == ".." || self.name == "." {
            return Err("its name must be that of a program".to_owned());
        }
        let question = Question {
            kind: "CredentialProviderRequest",
            api_version: &self.api_version,
            image,
        };
        let question = serde_json::to_vec(&question).map_err(|error| error.to_string())?;
        let mut command = tokio::process::Command::new(directory.join(&self.name));
        command.args(&self.args);
        command.envs(self.env.iter().map(|variable| (&variable.name, &variable.value)));
        let (success, answer) = tokio::time::timeout(timeout, ask(command, &question))
            .await
            .map_err(|_| format!("no answer within {timeout:?}"))?
            .map_err(|error| error.to_string())?;
        if !success {
            return Err("it failed; run it by hand to see why".to_owned());
        }
        read_answer(&answer, image)
    }
}

/// The credential for an image in a provider's answer. The error is the fault of that answer.
pub(crate) fn read_answer(answer: &[u8], image: &str) -> Result<Option<Credential>, String> {
    // The answer holds secrets, so no message may quote it.
    let answer: Answer =
        serde_json::from_slice(answer).map_err(|_| "its answer is not JSON as agreed".to_owned())?;
    if answer.kind != "CredentialProviderResponse" {
        return Err("its answer is of another kind".to_owned());
    }
    Ok(choose(answer.auth.unwrap_or_default(), image))
}

/// Of several that are for an image the kubelet takes the last by name first, which is the longest path.
fn choose(logins: BTreeMap<String, Login>, image: &str) -> Option<Credential> {
    let mut fitting = logins.into_iter().rev().filter(|(pattern, login)| {
        is_match(pattern, image) && !(login.username.is_empty() && login.password.is_empty())
    });
    fitting.next().map(|(_, login)| Credential::Basic {
        username: login.username,
        password: login.password,
    })
}

/// Whether a pattern is for an image (`host[:port]/path`): the same port, as many names in the host, each of which
/// matches, and the pattern's path is where the image's begins. `*` and `?` stand for parts of one name of the host.
fn is_match(pattern: &str, image: &str) -> bool {
    let split = |text: &str| -> (String, Option<String>, String) {
        let text = text.trim_start_matches("https://").trim_start_matches("http://");
        let (place, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && !port.contains(']') => {
                (host, Some(port.to_owned()))
            }
            _ => (place, None),
        };
        (host.to_owned(), port, path.trim_end_matches('/').to_owned())
    };
    let (wanted_host, wanted_port, wanted_path) = split(pattern);
    let (host, port, path) = split(image);
    let (wanted, names): (Vec<&str>, Vec<&str>) =
        (wanted_host.split('.').collect(), host.split('.').collect());
    wanted_port == port
        && wanted.len() == names.len()
        && wanted
            .iter()
            .zip(&names)
            .all(|(pattern, name)| is_glob_match(pattern.as_bytes(), name.as_bytes()))
        && path.starts_with(&wanted_path)
}

/// Linear in the product of the lengths, for every pattern.
fn is_glob_match(pattern: &[u8], name: &[u8]) -> bool {
    // Which beginnings of the pattern fit what was read so far.
    let mut fits = vec![false; pattern.len() + 1];
    let skip_stars = |fits: &mut Vec<bool>| {
        for (at, byte) in pattern.iter().enumerate() {
            if *byte == b'*'
                && fits.get(at).copied().unwrap_or(false)
                && let Some(next) = fits.get_mut(at + 1)
            {
                *next = true;
            }
        }
    };
    if let Some(first) = fits.first_mut() {
        *first = true;
    }
    skip_stars(&mut fits);
    for byte in name {
        let mut next = vec![false; pattern.len() + 1];
        for (at, wanted) in pattern.iter().enumerate() {
            if !fits.get(at).copied().unwrap_or(false) {
                continue;
            }
            let after = match wanted {
                b'*' => at,
                b'?' => at + 1,
                wanted if wanted == byte => at + 1,
                _ => continue,
            };
            if let Some(fit) = next.get_mut(after) {
                *fit = true;
            }
        }
        skip_stars(&mut next);
        fits = next;
    }
    fits.last().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_kubelets_do() {
        for (pattern, image) in [
            (
                "123.dkr.ecr.*.amazonaws.com",
                "123.dkr.ecr.eu-west-1.amazonaws.com/app",
            ),
            (
                "*.dkr.ecr.*.amazonaws.com",
                "123.dkr.ecr.us-east-1.amazonaws.com/team/app",
            ),
            ("*.azurecr.io", "mine.azurecr.io/app"),
            ("app*.k8s.io", "app1.k8s.io/x"),
            ("*.*.registry.io", "a.b.registry.io/x"),
            ("registry.io:8080/path", "registry.io:8080/path/app"),
            ("https://registry.io/", "registry.io/app"),
            ("reg?stry.io", "registry.io/app"),
        ] {
            assert!(is_match(pattern, image), "{pattern} {image}");
        }
        for (pattern, image) in [
            ("*.io", "mine.azurecr.io/app"),
            ("*.azurecr.io", "azurecr.io/app"),
            ("registry.io:8080/path", "registry.io/path/app"),
            ("registry.io", "registry.io:8080/app"),
            ("registry.io/path", "registry.io/other"),
            ("registry.io", "registry.io.evil.example/app"),
            ("app*.k8s.io", "my-app.k8s.io/x"),
            ("reg?stry.io", "regstry.io/app"),
        ] {
            assert!(!is_match(pattern, image), "{pattern} {image}");
        }
    }

    #[test]
    fn the_most_special_login_is_taken() {
        let login = |name: &str| Login {
            username: name.to_owned(),
            password: "p".to_owned(),
        };
        let names = ["registry.io", "registry.io/team", "other.io"];
        let logins: BTreeMap<_, _> = names
            .iter()
            .map(|name| ((*name).to_owned(), login(name)))
            .collect();
        let Some(Credential::Basic { username, .. }) = choose(logins, "registry.io/team/app") else {
            panic!("none");
        };
        assert_eq!(username, "registry.io/team");
    }

    #[test]
    fn what_is_no_configuration_is_told() {
        assert!(parse(b"kind: Pod\n").unwrap_err().contains("Pod"));
        assert!(parse(b"[1").is_err());
        assert!(parse(&[0xff]).is_err());
    }
}
