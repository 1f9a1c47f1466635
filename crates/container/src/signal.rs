//! Signals by name and by number.

use std::str::FromStr;

use rustix::process::Signal;

/// The real-time signals that the C library offers (`signal(7)`). The numbers are the same on every
/// architecture that containers run on. The C library keeps 32 and 33 for itself.
const REALTIME: std::ops::RangeInclusive<i32> = 34..=64;

/// The named signals of Linux (`signal(7)`). An alias follows the usual name.
const NAMED: &[(&str, Signal)] = &[
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ILL", Signal::ILL),
    ("TRAP", Signal::TRAP),
    ("ABRT", Signal::ABORT),
    ("IOT", Signal::ABORT),
    ("BUS", Signal::BUS),
    ("FPE", Signal::FPE),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("SEGV", Signal::SEGV),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CHLD", Signal::CHILD),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("TTIN", Signal::TTIN),
    ("TTOU", Signal::TTOU),
    ("URG", Signal::URG),
    ("XCPU", Signal::XCPU),
    ("XFSZ", Signal::XFSZ),
    ("VTALRM", Signal::VTALARM),
    ("PROF", Signal::PROF),
    ("WINCH", Signal::WINCH),
    ("IO", Signal::IO),
    ("POLL", Signal::IO),
    ("PWR", Signal::POWER),
    ("SYS", Signal::SYS),
];

/// The signal that asks a container to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal(i32);

/// There is no such signal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a signal; use a name such as SIGTERM, SIGRTMIN+3, or a number from 1 to 64")]
pub struct SignalParseError(String);

impl Default for StopSignal {
    fn default() -> Self {
        StopSignal(Signal::TERM.as_raw())
    }
}

impl StopSignal {
    /// The signal's number on this machine.
    pub fn number(self) -> i32 {
        self.0
    }
}

/// `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`, `RTMAX-1`, in upper or lower case, as docker takes them.
impl FromStr for StopSignal {
    type Err = SignalParseError;

    fn from_str(text: &str) -> Result<Self, SignalParseError> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let number = NAMED
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, signal)| signal.as_raw())
            .or_else(|| realtime(name))
            .or_else(|| name.parse().ok().filter(|n| (1..=*REALTIME.end()).contains(n)));
        number
            .map(StopSignal)
            .ok_or_else(|| SignalParseError(text.to_owned()))
    }
}

fn realtime(name: &str) -> Option<i32> {
    let (base, offset) = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => (*REALTIME.start(), rest),
        (_, Some(rest)) => (*REALTIME.end(), rest),
        _ => return None,
    };
    let offset: i32 = match offset.as_bytes().first() {
        None => 0,
        Some(b'+' | b'-') => offset.parse().ok()?,
        Some(_) => return None,
    };
    base.checked_add(offset)
        .filter(|number| REALTIME.contains(number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [
            ("SIGTERM", 15),
            ("term", 15),
            ("9", 9),
            ("SIGQUIT", 3),
            ("WINCH", 28),
            ("SIGRTMIN+3", 37),
            ("RTMIN", 34),
            ("SIGRTMAX-14", 50),
            ("37", 37),
        ] {
            assert_eq!(text.parse::<StopSignal>().unwrap().number(), number, "{text}");
        }
        for text in [
            "",
            "SIG",
            "SIGNOPE",
            "0",
            "65",
            "-9",
            "RTMIN+31",
            "RTMAX+1",
            "SIGRTMIN3",
            "RTMIN+99999999999",
        ] {
            assert!(text.parse::<StopSignal>().is_err(), "{text}");
        }
    }
}
