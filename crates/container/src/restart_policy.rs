//! When a container that has ended is started again: `--restart`, with docker's names and its back-off.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ExitCode, RunError};

/// The first pause before a container is started again; docker's figure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause; docker's figure.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A container that ran for so long gets the first pause again; docker's figure.
const STEADY: Duration = Duration::from_secs(10);

/// When a container that has ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RestartPolicy {
    /// Never.
    #[default]
    No,
    /// If its exit code is not 0: so many times, or without a limit.
    OnFailure(Option<u32>),
    /// Whenever it ends, and after a boot even if a user had stopped it.
    Always,
    /// Whenever it ends, unless a user stopped it.
    UnlessStopped,
}

/// `no`, `on-failure`, `on-failure:N`, `always` or `unless-stopped`.
impl FromStr for RestartPolicy {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        match text {
            "no" | "" => Ok(Self::No),
            "always" => Ok(Self::Always),
            "unless-stopped" => Ok(Self::UnlessStopped),
            "on-failure" => Ok(Self::OnFailure(None)),
            _ => {
                let times = text
                    .strip_prefix("on-failure:")
                    .and_then(|times| times.parse().ok());
                let times = times.ok_or_else(|| RunError::RestartPolicy(text.to_owned()))?;
                // As docker has it.
                Ok(Self::OnFailure(Some(times).filter(|times| *times > 0)))
            }
        }
    }
}

impl fmt::Display for RestartPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No => f.write_str("no"),
            Self::OnFailure(None) => f.write_str("on-failure"),
            Self::OnFailure(Some(times)) => write!(f, "on-failure:{times}"),
            Self::Always => f.write_str("always"),
            Self::UnlessStopped => f.write_str("unless-stopped"),
        }
    }
}

impl TryFrom<String> for RestartPolicy {
    type Error = RunError;

    fn try_from(text: String) -> Result<Self, RunError> {
        text.parse()
    }
}

impl From<RestartPolicy> for String {
    fn from(policy: RestartPolicy) -> Self {
        policy.to_string()
    }
}

impl RestartPolicy {
    /// Whether a container that ended by itself, and was started again so many times, is started again. An unknown exit
    /// code is a failure.
    pub fn applies(self, code: Option<ExitCode>, restarts: u32) -> bool {
        match self {
            Self::No => false,
            Self::OnFailure(limit) => code != Some(ExitCode(0)) && limit.is_none_or(|limit| restarts < limit),
            Self::Always | Self::UnlessStopped => true,
        }
    }
}

/// The pause before a container is started again that ran for `ran`, after a pause of `last`.
pub(crate) fn pause_after(last: Option<Duration>, ran: Duration) -> Duration {
    match last {
        Some(last) if ran < STEADY => (last * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
        _ => FIRST_PAUSE,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_written_as_for_docker() {
        for text in ["no", "on-failure", "on-failure:3", "always", "unless-stopped"] {
            assert_eq!(text.parse::<RestartPolicy>().unwrap().to_string(), text);
        }
        for text in ["on-failure:", "on-failure:-1", "on-failure:x", "never", "Always"] {
            assert!(
                text.parse::<RestartPolicy>()
                    .unwrap_err()
                    .to_string()
                    .contains(text)
            );
        }
    }

    #[test]
    fn a_failure_is_what_on_failure_waits_for() {
        let policy = RestartPolicy::OnFailure(Some(2));
        assert!(!policy.applies(Some(ExitCode(0)), 0));
        assert!(policy.applies(Some(ExitCode(1)), 1) && policy.applies(None, 0));
        assert!(!policy.applies(Some(ExitCode(1)), 2));
        assert!(RestartPolicy::Always.applies(Some(ExitCode(0)), 1000));
        assert!(!RestartPolicy::No.applies(Some(ExitCode(1)), 0));
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew_after_a_steady_run() {
        let mut last = None;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let pause = pause_after(last, Duration::from_secs(1));
            pauses.push(pause.as_millis());
            last = Some(pause);
        }
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[11], 60_000);
        assert_eq!(pause_after(last, STEADY), FIRST_PAUSE);
    }
}
