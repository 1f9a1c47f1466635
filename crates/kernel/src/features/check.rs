//! The result of a check, and the way in which it takes an error.

use std::error::Error;
use std::io;

use rustix::io::Errno;

const CONFINED: &str = "something forbids it to this process: run outside of a container, or with its seccomp filter and its \
                        AppArmor or SELinux profile off";

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It works.
    Good,
    /// It works less well than it could.
    Poor,
    /// It was not tried, since something that the trial needs is missing; the detail names it.
    NotTried,
    /// Lazy images cannot work without it.
    Missing,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The feature that was checked, in words.
    pub name: &'static str,
    /// How well it works here.
    pub outcome: Outcome,
    /// The finding, in words.
    pub detail: String,
    /// The remedy when it is not [`Outcome::Good`].
    pub advice: &'static str,
}

pub(super) type Found = Result<(Outcome, String), Trouble>;

/// The reason why a check failed.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) text: String,
    /// The remedy, if it is another one than usual.
    pub(super) advice: Option<&'static str>,
}

impl Trouble {
    /// Of an error. A refusal is not a lack: then something forbids this process a call that its capabilities allow.
    pub(super) fn of(error: impl Error + 'static) -> Self {
        let text = error.to_string();
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            let said = error.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
            let said = said.or_else(|| error.downcast_ref::<Errno>().copied());
            if matches!(said, Some(Errno::PERM | Errno::ACCESS)) {
                return Self {
                    text,
                    advice: Some(CONFINED),
                };
            }
            cause = error.source();
        }
        text.into()
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self { text, advice: None }
    }
}

impl From<&str> for Trouble {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

pub(super) fn check(name: &'static str, found: Found, advice: &'static str) -> Check {
    match found {
        Ok((outcome, detail)) => Check {
            name,
            outcome,
            detail,
            advice,
        },
        Err(trouble) => Check {
            name,
            outcome: Outcome::Missing,
            detail: trouble.text,
            advice: trouble.advice.unwrap_or(advice),
        },
    }
}
