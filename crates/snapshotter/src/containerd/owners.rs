//! The image of which a container is made, as containerd has noted it.
//!
//! A client prepares a snapshot, notes a container with its key, and asks for the snapshot's mounts once more before anything runs. So
//! at that moment containerd knows the container that runs on the snapshot, and the name of its image. containerd's own record has the
//! name of an image. CRI has several names for one image, and notes in the container's specification how the pod has it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::containers::Container;
use super::{Containerd, ContainerdError};

/// How long containerd may take to say what it has noted. It answers from a file of its own, while it waits for us.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest manifest that is read, in bytes; registries allow none longer.
const LONGEST_DOCUMENT: usize = 4 << 20;
/// The name of this snapshotter in containerd's configuration, if its author followed the documentation. Two snapshotters may each have
/// a snapshot by one key.
const SNAPSHOTTER: &str = "xebec";
/// How CRI has the image of a container, and of what keeps a pod's namespaces (`internal/cri/annotations` in containerd).
const NAMES: [&str; 2] = [
    "io.kubernetes.cri.image-name",
    "io.kubernetes.cri.podsandbox.image-name",
];

/// An image, as a container has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerImage {
    /// Its name, as the client that made the container gave it.
    pub name: String,
    /// The digest in the name, or else the one that containerd's name for the image stands for; `None` if there is no such
    /// name any more.
    pub digest: Option<String>,
    /// The manifest or image index that has that digest, as containerd has it. Nobody has compared the two.
    pub document: Option<Vec<u8>>,
}

/// The client that asks containerd.
#[derive(Clone, Debug)]
pub struct Owners {
    socket: PathBuf,
}

impl Owners {
    /// The containerd that listens there.
    pub fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// The images of the containers that have this snapshot; none if there is no container yet, or if that is no key of
    /// containerd's.
    ///
    /// # Errors
    /// When containerd does not answer in time, or refuses.
    pub async fn of(&self, key: &str) -> Result<Vec<ContainerImage>, ContainerdError> {
        let Some((namespace, name)) = client_key(key) else {
            return Ok(Vec::new());
        };
        let asked = tokio::time::timeout(PATIENCE, self.ask(namespace, name)).await;
        asked.unwrap_or_else(|_| {
            Err(ContainerdError::Unreachable {
                socket: self.socket.clone(),
                reason: format!("no answer within {} s", PATIENCE.as_secs()),
            })
        })
    }

    async fn ask(&self, namespace: &str, name: &str) -> Result<Vec<ContainerImage>, ContainerdError> {
        let containerd = Containerd::connect(&self.socket, namespace).await?;
        // Most clients name the snapshot after the container; to look through all of them takes longer.
        let filter = format!("id=={}", quoted(name));
        let mut found = with_snapshot(&containerd, &[filter], name).await?;
        if !found.iter().any(is_ours) {
            found = of_ours(with_snapshot(&containerd, &[], name).await?);
        }
        let mut images = Vec::new();
        for container in found {
            let wanted = wanted_name(&container).unwrap_or_else(|| container.image.clone());
            if wanted.is_empty() {
                continue;
            }
            let digest = match wanted.split_once('@') {
                Some((_, digest)) => Some(digest.to_owned()),
                None if container.image.is_empty() => None,
                None => {
                    let image = containerd.image(&container.image).await?;
                    image.and_then(|image| image.target).map(|target| target.digest)
                }
            };
            let document = match &digest {
                Some(digest) => containerd
                    .blob(digest, LONGEST_DOCUMENT)
                    .await
                    .unwrap_or_default(),
                None => None,
            };
            images.push(ContainerImage {
                name: wanted,
                digest,
                document,
            });
        }
        Ok(images)
    }
}

/// Whether a container's files are surely with this snapshotter.
fn is_ours(container: &Container) -> bool {
    container.snapshotter == SNAPSHOTTER
}

/// Those that surely have their files here; if there is none, any of them may.
fn of_ours(mut found: Vec<Container>) -> Vec<Container> {
    if found.iter().any(is_ours) {
        found.retain(is_ours);
    }
    found
}

async fn with_snapshot(
    containerd: &Containerd,
    filters: &[String],
    name: &str,
) -> Result<Vec<Container>, ContainerdError> {
    let mut containers = containerd.containers(filters).await?;
    let mut found = Vec::new();
    while let Some(container) = containers.next().await? {
        if container.snapshot_key == name {
            found.push(container);
        }
    }
    Ok(found)
}

/// Namespace and key as a client of containerd knows them, of one that containerd made of both and a number.
fn client_key(key: &str) -> Option<(&str, &str)> {
    let (namespace, rest) = key.split_once('/')?;
    let (number, name) = rest.split_once('/')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !namespace.is_empty() && !name.is_empty()).then_some((namespace, name))
}

/// A value in a filter.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

#[derive(Deserialize)]
struct Spec {
    annotations: Option<HashMap<String, String>>,
}

/// How a pod has the image.
fn wanted_name(container: &Container) -> Option<String> {
    let spec = container.spec.as_ref()?;
    let mut annotations = serde_json::from_slice::<Spec>(&spec.value).ok()?.annotations?;
    let named = NAMES.into_iter().find_map(|name| annotations.remove(name));
    named.filter(|name| !name.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;
    use crate::containerd::containers::Any;

    #[test]
    fn keys() {
        assert_eq!(client_key("k8s.io/12/web"), Some(("k8s.io", "web")));
        assert_eq!(client_key("default/7/a/b"), Some(("default", "a/b")));
        for other in ["web", "a/b", "a/b/c", "a//c", "/1/c", "a/1/", "sha256:ab"] {
            assert_eq!(client_key(other), None, "{other}");
        }
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
    }

    #[test]
    fn a_pod_names_its_image_in_the_specification() {
        let with = |spec: &str| {
            wanted_name(&Container {
                image: "registry/app:1".to_owned(),
                spec: Some(Any {
                    type_url: String::new(),
                    value: spec.as_bytes().to_vec(),
                }),
                ..Container::default()
            })
        };
        let spec = r#"{"ociVersion": "1", "annotations": {"x": "y", "io.kubernetes.cri.image-name": "app@sha256:ab"}}"#;
        assert_eq!(with(spec).as_deref(), Some("app@sha256:ab"));
        let sandbox = r#"{"annotations": {"io.kubernetes.cri.podsandbox.image-name": "pause:3"}}"#;
        assert_eq!(with(sandbox).as_deref(), Some("pause:3"));
        for nothing in [
            "{}",
            "{\"annotations\": null}",
            "{\"annotations\": {\"x\": \"y\"}}",
            "no JSON",
            "",
        ] {
            assert_eq!(with(nothing), None, "{nothing}");
        }
    }
}
