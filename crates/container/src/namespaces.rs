//! Which processes and which shared memory a container sees: `--pid` and `--ipc`.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use xebec_kernel::process::start_time;

use crate::name::is_container_name;
use crate::{RunError, record};

/// The processes that a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PidMode {
    /// Its own.
    #[default]
    Private,
    /// Those of the host.
    Host,
    /// Those of another container.
    Container(String),
}

impl fmt::Display for PidMode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private => to.write_str("private"),
            Self::Host => to.write_str("host"),
            Self::Container(name) => write!(to, "container:{name}"),
        }
    }
}

impl FromStr for PidMode {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        match text.split_once(':') {
            None if text == "private" => Ok(Self::Private),
            None if text == "host" => Ok(Self::Host),
            Some(("container", name)) if is_container_name(name) => Ok(Self::Container(name.to_owned())),
            _ => Err(RunError::Namespace {
                option: "--pid",
                value: text.to_owned(),
                known: "host, private or container:NAME",
            }),
        }
    }
}

/// The shared memory, semaphores and message queues that a container sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpcMode {
    /// Its own.
    #[default]
    Private,
    /// Those of the host.
    Host,
}

impl fmt::Display for IpcMode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Private => "private",
            Self::Host => "host",
        })
    }
}

impl FromStr for IpcMode {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        match text {
            "private" => Ok(Self::Private),
            "host" => Ok(Self::Host),
            _ => Err(RunError::Namespace {
                option: "--ipc",
                value: text.to_owned(),
                known: "private or host; containers do not share one",
            }),
        }
    }
}

/// The PID namespace of a container that runs, held by a descriptor: the number of its process may become
/// another one's.
#[derive(Debug)]
pub(crate) struct PidNamespace(File);

impl PidNamespace {
    /// That of this container. `None` if it is private or the host's.
    pub(crate) fn find(mode: &PidMode, run: &Path) -> Result<Option<Self>, RunError> {
        let PidMode::Container(name) = mode else {
            return Ok(None);
        };
        let not_running = || RunError::NotRunning(name.clone());
        let record = record::read(&record::path(run, name))?.ok_or_else(not_running)?;
        let (Some(pid), Some(started)) = (record.pid, record.pid_started) else {
            return Err(not_running());
        };
        let path = PathBuf::from(format!("/proc/{pid}/ns/pid"));
        let namespace = File::open(&path).map_err(RunError::file("open", &path))?;
        match start_time(pid) == Some(started) {
            true => Ok(Some(Self(namespace))),
            false => Err(not_running()),
        }
    }

    /// A path by which the runtime finds it, as long as this value lives.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_have_dockers_names() {
        let pid = |text: &str| text.parse::<PidMode>();
        assert_eq!(pid("host").unwrap(), PidMode::Host);
        assert_eq!(pid("container:web").unwrap(), PidMode::Container("web".into()));
        for text in ["", "hosts", "container:", "container:../x", "private:x"] {
            assert!(pid(text).is_err(), "{text}");
        }
        assert_eq!("host".parse::<IpcMode>().unwrap(), IpcMode::Host);
        for text in ["", "shareable", "none", "container:web"] {
            assert!(text.parse::<IpcMode>().is_err(), "{text}");
        }
        let run = tempfile::tempdir().unwrap();
        let error = PidNamespace::find(&PidMode::Container("web".into()), run.path()).unwrap_err();
        assert!(error.to_string().contains("web"), "{error}");
    }
}
