//! Which containers are to be started again after a boot of the host, or after their supervisor was killed.

use xebec_kernel::process::boot_id;

use crate::container::{Container, Status, containers};
use crate::saved::{SavedProcess, SavedStatus, stopped_in_boot};
use crate::{Directories, RecordError, RestartPolicy};

/// The containers whose restart policy asks for a start that no supervisor makes.
///
/// # Errors
/// If the containers cannot be listed.
pub fn to_restore(dirs: &Directories) -> Result<Vec<Container>, RecordError> {
    let boot = boot_id().unwrap_or_default();
    let mut found = containers(dirs)?.containers;
    found.retain(|container| is_to_restore(container, &boot));
    Ok(found)
}

fn is_to_restore(container: &Container, boot: &str) -> bool {
    let Some(saved) = &container.saved else {
        return false;
    };
    let is_idle = container.record.as_ref().is_none_or(crate::Record::is_dead);
    let is_supervised = saved.supervisor.as_ref().is_some_and(SavedProcess::is_alive);
    if container.status() != Status::Exited || !is_idle || is_supervised {
        return false;
    }
    let stopped = stopped_in_boot(&container.directory);
    match saved.restart {
        RestartPolicy::No => false,
        // A stop counts until the host's next boot, as it counts for docker until its daemon's next start.
        RestartPolicy::Always => stopped.is_none_or(|stopped| !stopped.is_empty() && stopped != boot),
        RestartPolicy::UnlessStopped => stopped.is_none(),
        RestartPolicy::OnFailure(_) => {
            let was_interrupted = saved.status != SavedStatus::Exited;
            was_interrupted
                && stopped.is_none()
                && saved.restart.applies(container.exit_code(), saved.restarts)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::layout::STOP_MARKER;
    use crate::saved::{Saved, mark_stopped};

    #[test]
    fn policies_say_what_is_started_after_a_boot() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let policies = ["no", "on-failure", "always", "unless-stopped"];
        for (policy, status) in policies.iter().flat_map(|policy| {
            [SavedStatus::Created, SavedStatus::Running, SavedStatus::Exited].map(|status| (policy, status))
        }) {
            let directory = dirs.state.join(format!("{policy}-{status:?}"));
            fs::create_dir_all(&directory).unwrap();
            let mut saved = Saved::new("0123456789ab".into(), "image:1".into(), 1000);
            saved.restart = policy.parse().unwrap();
            saved.status = status;
            saved.started_ms = Some(2000).filter(|_| status != SavedStatus::Created);
            saved.exit_code = Some(0).filter(|_| status == SavedStatus::Exited);
            saved.write(&directory).unwrap();
        }
        let restored = || {
            let mut names: Vec<String> = to_restore(&dirs)
                .unwrap()
                .into_iter()
                .map(|one| one.name)
                .collect();
            names.sort();
            names.join(" ")
        };
        let all =
            "always-Exited always-Running on-failure-Running unless-stopped-Exited unless-stopped-Running";
        assert_eq!(restored(), all);
        for name in ["always-Running", "unless-stopped-Running", "on-failure-Running"] {
            mark_stopped(&dirs.state.join(name)).unwrap();
        }
        assert_eq!(restored(), "always-Exited unless-stopped-Exited");
        for name in ["always-Running", "unless-stopped-Running"] {
            fs::write(dirs.state.join(name).join(STOP_MARKER), "another boot").unwrap();
        }
        assert_eq!(restored(), "always-Exited always-Running unless-stopped-Exited");
    }
}
