//! Events of which a container's supervisor must hear, and the channel on which it hears of them.
//!
//! Signals, probes, the work that runs beside the preparations, and the end of the container's first process
//! each have a thread. All of them send to one channel, so that the supervisor alone decides.

use std::io;
use std::sync::mpsc::Sender;

use crate::{ExitCode, Identity, ImageConfig};

/// An event that the supervisor of a container receives.
pub(crate) enum SupervisorEvent {
    /// The work that runs beside the preparations has ended ([`Prepared::begin`](crate::Prepared::begin)).
    WorkEnded,
    /// The image's configuration is known, and perhaps its user.
    ImageConfig(Box<ImageConfig>, Option<Identity>),
    /// This process received a signal.
    Signal(i32),
    /// The probe of this number has succeeded.
    ProbeSucceeded(usize),
    /// The probe of this number can never succeed.
    ProbeBroken(usize, io::Error),
    /// The container's first process has ended.
    Exited(ExitCode),
}

/// Tells the supervisor the configuration of an image as soon as it is known, before the image's view exists.
pub struct ConfigNotifier(Sender<SupervisorEvent>);

impl ConfigNotifier {
    /// The image has this configuration. `user` is its user as an earlier start found it, if one is
    /// remembered.
    pub fn notify(&self, image: ImageConfig, user: Option<Identity>) {
        // The supervisor has ended if nothing receives this.
        let _ = self.0.send(SupervisorEvent::ImageConfig(Box::new(image), user));
    }
}

/// Sends [`SupervisorEvent::WorkEnded`] when it is dropped, also when the work panics.
pub(crate) struct WorkEnd(Sender<SupervisorEvent>);

impl WorkEnd {
    pub(crate) fn new(sender: Sender<SupervisorEvent>) -> Self {
        Self(sender)
    }

    pub(crate) fn notifier(&self) -> ConfigNotifier {
        ConfigNotifier(self.0.clone())
    }
}

impl Drop for WorkEnd {
    fn drop(&mut self) {
        let _ = self.0.send(SupervisorEvent::WorkEnded);
    }
}
