//! The files by which the runtime starts a command in a container. They are in a directory of their own in the
//! container's bundle, which goes with the container if this process is killed.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde_json::Value;
use xebec_kernel::file::create_for_this_boot;

use crate::RunError;
use crate::name::random_name;
use crate::runtime::ExecPaths;

/// The directory of a command's start. Dropped, it is removed.
pub(super) struct ExecFiles {
    path: PathBuf,
    paths: ExecPaths,
    opened: File,
}

impl ExecFiles {
    pub(super) fn create(bundle: &Path, process: &Value) -> Result<Self, RunError> {
        let name = random_name().map_err(RunError::system("get random bytes for a name"))?;
        let path = bundle.join(format!("exec-{name}"));
        fs::create_dir(&path).map_err(RunError::file("create", &path))?;
        let opened = File::open(&path).inspect_err(|_| {
            let _ = fs::remove_dir(&path);
        });
        let files = ExecFiles {
            opened: opened.map_err(RunError::file("open", &path))?,
            paths: ExecPaths {
                process: path.join("process.json"),
                pid_file: path.join("pid"),
                log: path.join("log"),
                console: None,
            },
            path,
        };
        let process = process.to_string();
        let written = create_for_this_boot(&files.paths.process, process.as_bytes());
        written.map_err(RunError::file("write", &files.paths.process))?;
        Ok(files)
    }

    pub(super) fn paths(&self) -> &ExecPaths {
        &self.paths
    }

    /// Where the command's terminal arrives. A socket's path must be short (`unix(7)`), so it leads through
    /// the open directory.
    pub(super) fn console_socket(&self) -> PathBuf {
        // The mounted /proc may be of another namespace, where this process has another id.
        let process = fs::read_link("/proc/self").unwrap_or_else(|_| "self".into());
        let number = self.opened.as_raw_fd().to_string();
        Path::new("/proc")
            .join(process)
            .join("fd")
            .join(number)
            .join("tty")
    }
}

impl Drop for ExecFiles {
    fn drop(&mut self) {
        let ExecPaths {
            process,
            pid_file,
            log,
            ..
        } = &self.paths;
        for file in [process, pid_file, log] {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir(&self.path);
    }
}
