//! The program, with directories of its own.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A root and a run directory that no other test uses.
pub(crate) struct Program {
    directory: TempDir,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Its root directory, which need not be there yet.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Its run directory.
    pub(crate) fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// The program with these arguments, and nothing of this process's environment that it would heed.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xebec"));
        command.args(arguments);
        self.with_directories(&mut command);
        command
    }

    /// Gives a command that runs the program these directories.
    pub(crate) fn with_directories<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.stdin(Stdio::null());
        command.env("XEBEC_ROOT", self.root());
        command.env("XEBEC_RUN", self.run());
        command.env("HOME", self.directory.path());
        command.env("XDG_RUNTIME_DIR", self.directory.path().join("session"));
        for name in [
            "XEBEC_LOG",
            "DOCKER_CONFIG",
            "JOURNAL_STREAM",
            "REGISTRY_AUTH_FILE",
            "XDG_CONFIG_HOME",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// A path below the caller's home directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The output of the program with these arguments.
    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// The output of a process, as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
