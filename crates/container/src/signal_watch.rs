//! The signals that reach this process, as events of the supervisor.

use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use crate::RunError;
use crate::supervisor_event::SupervisorEvent;

/// The signals that the supervisor forwards. It answers `SIGWINCH` by resizing the container's terminal.
const SIGNALS: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// Sends this process's signals to the supervisor until it is dropped.
pub(crate) struct SignalWatch(Handle);

impl SignalWatch {
    pub(crate) fn start(sender: &Sender<SupervisorEvent>) -> Result<Self, RunError> {
        let failed = RunError::system("listen for signals");
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
