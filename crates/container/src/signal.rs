//! Signals: by name and by number, the exit codes that they turn into, and those that this process gets.

use std::str::FromStr;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use super::supervisor::SupervisorEvent;
use super::{ExitCode, RunError};

/// First real-time signal as the C library counts, and the last; Linux `signal(7)` on every architecture that
/// containers run on. The C library keeps 32 and 33 for itself.
const REALTIME: std::ops::RangeInclusive<i32> = 34..=64;

/// Linux numbers of the signals that have a name there (`signal(7)`); aliases after the usual name.
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

/// The signal that asks a container to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal(i32);

/// No such signal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no signal; use a name such as SIGTERM, SIGRTMIN+3, or a number from 1 to 64")]
pub struct SignalParseError(String);

impl Default for StopSignal {
    fn default() -> Self {
        StopSignal(Signal::TERM.as_raw())
    }
}

impl StopSignal {
    /// Its number on this machine.
    pub fn number(self) -> i32 {
        self.0
    }
}

/// `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`, `RTMAX-1`; in either case, as docker takes them.
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

/// The signals that are handed on. `SIGWINCH` is answered by resizing the container's terminal.
const SIGNALS: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// Hands this process's signals to the supervisor while it lives.
pub(super) struct SignalWatch(Handle);

impl SignalWatch {
    pub(super) fn start(sender: &Sender<SupervisorEvent>) -> Result<Self, RunError> {
        let failed = |source| RunError::System {
            doing: "listen for signals",
            source,
        };
        let mut signals = Signals::new(SIGNALS).map_err(failed)?;
        let handle = signals.handle();
        let sender = sender.clone();
        let listen = move || {
            for signal in signals.forever() {
                if sender.send(SupervisorEvent::Signal(signal)).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .map_err(failed)?;
        Ok(SignalWatch(handle))
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What a shell reports for a process that this signal ended.
pub(super) fn exit_code_of(signal: i32) -> ExitCode {
    ExitCode(u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX))
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

    #[test]
    fn exit_codes_of_signals_saturate() {
        assert_eq!(exit_code_of(9), ExitCode(137));
        assert_eq!(exit_code_of(1000), ExitCode(255));
    }
}
