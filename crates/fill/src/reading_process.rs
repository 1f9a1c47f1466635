//! The process that reads, and the container that it is in.

use std::fs::File;
use std::io::Read;

/// Longest text of `/proc/PID/cgroup` that is read; paths are at most 4096 bytes.
const MAX_CGROUP: u64 = 8 << 10;

/// The process that reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id on the host.
    pub pid: i32,
    /// Its name, as the kernel has it; empty when it is gone.
    pub comm: String,
    /// The container that it is in, by its control group.
    pub container: Option<String>,
    /// The random part of the name of that container's control group, which no other container of its name has.
    pub container_run: Option<String>,
}

impl Process {
    /// Looks at a process, which cannot end while it waits for a page (unless it is killed).
    pub fn look_at(pid: i32) -> Self {
        let read = |name: &str| {
            let mut text = Vec::new();
            let file = File::open(format!("/proc/{pid}/{name}"));
            let _ = file.map(|file| file.take(MAX_CGROUP).read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        };
        let (container, container_run) = match container_of(&read("cgroup")) {
            Some((name, run)) => (Some(name), run),
            None => (None, None),
        };
        Self {
            pid,
            comm: read("comm").trim_end().to_owned(),
            container,
            container_run,
        }
    }
}

/// The container's name in the text of `/proc/PID/cgroup`, and what tells it from others of its name.
pub(crate) fn container_of(cgroups: &str) -> Option<(String, Option<String>)> {
    let mut paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let path = paths.find(|path| xebec_container::container_of_cgroup(path).is_some())?;
    let name = xebec_container::container_of_cgroup(path)?.to_owned();
    let run = xebec_container::run_of_cgroup(path).map(str::to_owned);
    Some((name, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_control_group() {
        for (text, name) in [
            ("0::/xebec/web-1\n", Some(("web-1", None))),
            ("0::/../../xebec/web/sub\n", Some(("web", None))),
            (
                "0::/xebec/web@0123456789ab\n",
                Some(("web", Some("0123456789ab"))),
            ),
            (
                "0::/../xebec/web@0123456789ab/sub\n",
                Some(("web", Some("0123456789ab"))),
            ),
            ("4:memory:/user/xebec/db\n1:name=systemd:/x\n", Some(("db", None))),
            ("0::/system.slice/xebec.service\n", None),
            ("", None),
        ] {
            let found = container_of(text);
            let found = found.as_ref().map(|(name, run)| (name.as_str(), run.as_deref()));
            assert_eq!(found, name, "{text:?}");
        }
    }
}
