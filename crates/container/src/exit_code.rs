//! The exit code of a container.

/// The exit code of a container as a shell reports it: the code of its first process, or 128 plus the number
/// of the signal that ended it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitCode(pub u8);

impl ExitCode {
    /// The code that a shell reports for a process that this signal ended.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX))
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        code.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_signals_saturate() {
        assert_eq!(ExitCode::of_signal(9), ExitCode(137));
        assert_eq!(ExitCode::of_signal(1000), ExitCode(255));
    }
}
