//! Why corrections cannot be used.

/// Why corrections cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// They name an encoder that is not known.
    #[error("the corrections are for an encoder that is not known")]
    Profile,
    /// They end too soon.
    #[error("the corrections end too soon")]
    Truncated,
    /// They say something that cannot be.
    #[error("the corrections say what cannot be")]
    Value,
    /// They make more than they may.
    #[error("the corrections make more bytes than they may")]
    TooMuch,
}
