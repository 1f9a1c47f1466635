//! The containers that need an image: those that are started again with it.

use xebec_container::Container;
use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};

/// Refuses to forget an image, called `name`, with which containers are started again.
///
/// # Errors
/// That, with the names of the containers and what to do.
pub fn check_unneeded(name: &str, manifest: Digest, found: &[Container]) -> Result<(), Failure> {
    let its = containers_of(manifest, found);
    let names = its.join(" ");
    let message = match its.len() {
        0 => return Ok(()),
        1 => format!(
            "{name} is the image of the container {names}; remove that first (xebec rm {names}), or use \
             `xebec rmi --force {name}`: then the container needs the image's registry to start again"
        ),
        _ => format!(
            "{name} is the image of the containers {}; remove these first (xebec rm {names}), or use \
             `xebec rmi --force {name}`: then the containers need the image's registry to start again",
            its.join(", ")
        ),
    };
    Err(Failure::new(FailureKind::Usage, message))
}

/// The names of the containers that are started again with an image.
fn containers_of(manifest: Digest, found: &[Container]) -> Vec<String> {
    let manifest = manifest.to_string();
    let is_its = |container: &&Container| {
        let saved = container.saved.as_ref();
        saved.and_then(|saved| saved.manifest.as_ref()) == Some(&manifest)
    };
    let mut names: Vec<String> = found.iter().filter(is_its).map(|one| one.name.clone()).collect();
    names.sort();
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_that_do_not_run_have_their_image() {
        let top = tempfile::tempdir().unwrap();
        let directories = xebec_container::Directories {
            state: top.path().join("state"),
            run: top.path().join("run"),
        };
        let [one, two] = ["one", "two"].map(|name| Digest::of(name.as_bytes()));
        for (name, manifest) in [("b", Some(one)), ("a", Some(one)), ("c", Some(two)), ("d", None)] {
            let saved = json!({
                "version": 1, "id": "0123456789ab", "image": "r.lan/one:1", "manifest": manifest, "command": [],
                "created_ms": 1, "started_ms": 2, "finished_ms": 3, "status": "exited", "exit_code": 0,
                "reason": null, "oom_killed": false, "restart": "no", "restarts": 0, "pause_ms": null, "supervisor": null,
                "labels": {}, "detached": true, "stop_signal": 0, "stop_timeout_ms": 0, "caller": null,
            });
            std::fs::create_dir_all(directories.state.join(name)).unwrap();
            std::fs::write(
                directories.state.join(name).join("container.json"),
                saved.to_string(),
            )
            .unwrap();
        }
        let found = xebec_container::containers(&directories).unwrap().containers;
        assert_eq!(containers_of(one, &found), ["a", "b"]);
        assert_eq!(containers_of(two, &found), ["c"]);
        assert!(containers_of(Digest::of(b"other"), &found).is_empty());
    }
}
