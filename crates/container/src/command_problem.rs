//! Why a container's command cannot be run.

/// Why a command certainly cannot be run, as the end of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandProblem {
    /// There is no such file.
    #[error("there is no such file")]
    Missing,
    /// There is no such file in the directories that are searched.
    #[error("executable file not found in $PATH ({0})")]
    NotInPath(String),
    /// It is a file that nobody may execute.
    #[error("permission denied: nobody may execute that file (chmod +x)")]
    NotExecutable,
    /// It is a directory.
    #[error("is a directory")]
    Directory,
}

impl CommandProblem {
    /// Whether there is no such command.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing | Self::NotInPath(_))
    }
}
