//! The options of a command that joins a container.

use crate::Screen;

/// The command that joins a container, and its options.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// The command and its arguments; not empty.
    pub command: Vec<String>,
    /// Variables that add to those of the container, or replace them.
    pub env: Vec<(String, String)>,
    /// The working directory, an absolute path. By default the container's.
    pub workdir: Option<String>,
    /// `user[:group]`, names or numbers. By default the container's.
    pub user: Option<String>,
    /// Whether the command reads this process's standard input. Otherwise it reads `/dev/null`.
    pub interactive: bool,
    /// Whether the command gets a terminal of its own, joined to this process's terminal.
    pub tty: bool,
    /// The screen of that terminal, as far as it becomes known.
    pub screen: Screen,
    /// Whether this process does not wait for the command, which then has no input and no output.
    pub detach: bool,
}
