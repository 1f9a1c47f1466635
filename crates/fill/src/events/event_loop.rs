//! The thread that reads events and hands them on.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::{error, info, warn};
use xebec_kernel::fanotify::{Denial, FanotifyError};
use xebec_kernel::journal::{CAPACITY, Intake, JournalError, Owed};
use xebec_kernel::process;

use super::answer::{Waiting, event_of};
use super::{Answer, EventError, EventHandler, LeftEvents};

/// Descriptors that are left to the rest of the worker (sockets, data files, caches) when there are many.
const DESCRIPTORS_KEPT_BACK: u64 = 3000;

/// How long the thread waits when descriptors ran out in spite of that, before it tries again.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(20);

/// Events are read and handed on until it is stopped or dropped.
#[derive(Debug)]
pub struct EventLoop {
    waiting: Arc<Waiting>,
    thread: Option<JoinHandle<()>>,
}

impl EventLoop {
    /// Hands the events that predecessors left to `handler`, and new ones as they come.
    ///
    /// The handler must be ready: every layer that a guarded mount may be reading is known to it.
    ///
    /// # Errors
    /// [`EventError::Thread`]. The process must then end, with a status other than 0.
    pub fn start(left: LeftEvents, handler: Arc<dyn EventHandler>) -> Result<EventLoop, EventError> {
        let LeftEvents { group, intake, owed } = left;
        let error = |source| EventError::Thread { source };
        let waiting = Arc::new(Waiting::new(group).map_err(error)?);
        let reader = Reader {
            intake,
            handler,
            waiting: waiting.clone(),
            limit: owed_limit(),
        };
        let thread = std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || {
                // A worker that no longer reads events would let every reader wait for ever. The keeper replaces
                // a worker that ends, but cannot see one thread of it end.
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.run(owed)));
                match outcome {
                    Ok(Ok(())) => return,
                    Ok(Err(problem)) => error!("cannot read events any more: {problem}"),
                    Err(_) => error!("the thread that reads events panicked"),
                }
                std::process::abort();
            })
            .map_err(error)?;
        Ok(EventLoop {
            waiting,
            thread: Some(thread),
        })
    }

    /// How many events are owed an answer now.
    pub fn owed(&self) -> usize {
        self.waiting.owed()
    }

    /// Stops reading, from the next time that the thread looks on; returns at once. See [`EventLoop::stop`].
    pub fn stop_reading(&self) {
        self.waiting.stop();
    }

    /// Stops reading. Events that were handed out still have to be answered; readers that come later wait in
    /// the kernel's queue, for the next worker or for the keeper's denial.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.waiting.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.end();
    }
}

struct Reader {
    intake: Intake,
    handler: Arc<dyn EventHandler>,
    waiting: Arc<Waiting>,
    /// So many events may be owed at a time.
    limit: usize,
}

impl Reader {
    fn run(mut self, left: Vec<Owed>) -> Result<(), JournalError> {
        if !left.is_empty() {
            let unknown = left.iter().filter(|owed| owed.file.is_none()).count();
            info!(
                "took over {} events of a worker that died; the files of {unknown} of them are unknown",
                left.len()
            );
        }
        let mut batch = left;
        self.waiting.add(batch.len());
        loop {
            for owed in batch.drain(..) {
                self.sort(owed);
            }
            while let Some(suspect) = self.waiting.next_suspect() {
                self.hand_out(suspect, true);
            }
            if self.waiting.is_stopping() {
                return Ok(());
            }
            if !self.has_room() {
                self.wait(false);
            } else if self.read(&mut batch)? == 0 && batch.is_empty() {
                self.wait(true);
            }
        }
    }

    fn sort(&self, owed: Owed) {
        if owed.is_condemned() {
            self.condemn(owed);
        } else if owed.is_suspect() {
            self.waiting.queue_suspect(owed);
        } else {
            self.hand_out(owed, false);
        }
    }

    fn hand_out(&self, owed: Owed, suspect: bool) {
        owed.begin();
        let event = event_of(&owed);
        let answer = Answer::new(owed, suspect, self.waiting.clone());
        self.handler.clone().handle(event, answer);
    }

    fn condemn(&self, owed: Owed) {
        let event = event_of(&owed);
        let file = event.file.and_then(|file| self.handler.describe(file));
        error!(
            ?event,
            "denied with EIO: {} workers died while they brought in bytes {}+{} of {}",
            event.deaths,
            event.offset,
            event.count,
            file.as_deref().unwrap_or("a file without a name"),
        );
        Answer::new(owed, false, self.waiting.clone()).deny(Denial::Io);
    }

    fn has_room(&mut self) -> bool {
        let fits = |owed: usize, limit: usize| owed + Intake::MAX_EVENTS_PER_READ <= limit;
        if fits(self.waiting.owed(), self.limit) {
            return true;
        }
        self.waiting.set_paused(true);
        let room = fits(self.waiting.owed(), self.limit);
        if room {
            self.waiting.set_paused(false);
        }
        room
    }

    fn read(&mut self, batch: &mut Vec<Owed>) -> Result<usize, JournalError> {
        let result = self.intake.read(&self.waiting.group, batch);
        // Whatever was recorded is owed, also when reading ended with an error.
        self.waiting.add(batch.len());
        match result {
            Ok(events) => Ok(events),
            Err(JournalError::Fanotify(FanotifyError::Read { source }))
                if matches!(source.raw_os_error(), Some(EMFILE | ENFILE)) =>
            {
                // The kernel has denied one reader already; its error was EPERM.
                error!("descriptors ran out: a reader was denied with EPERM; raise the limit of open files");
                std::thread::sleep(DESCRIPTOR_PAUSE);
                Ok(batch.len())
            }
            Err(problem @ (JournalError::Malformed(_) | JournalError::Full)) => {
                error!("{problem}");
                std::thread::sleep(DESCRIPTOR_PAUSE);
                Ok(batch.len())
            }
            Err(problem) => Err(problem),
        }
    }

    /// Waits until there is something to do: a new event (if `for_events`), an answer, the end.
    fn wait(&mut self, for_events: bool) {
        let group = PollFd::new(&self.waiting.group, PollFlags::IN);
        let wake = PollFd::new(self.waiting.wake_descriptor(), PollFlags::IN);
        let mut polled = vec![wake];
        if for_events {
            polled.push(group);
        }
        // Nothing depends on the timeout; it bounds the harm of a mistake in the reasoning about wake-ups.
        let timeout = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
        self.waiting.drain_wake();
        self.waiting.set_paused(false);
    }
}

const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();

/// Each owed event holds a descriptor and an entry of the table.
fn owed_limit() -> usize {
    let descriptors = process::open_file_limit();
    let kept_back = DESCRIPTORS_KEPT_BACK.min(descriptors / 2);
    let limit = usize::try_from(descriptors - kept_back)
        .unwrap_or(CAPACITY)
        .min(CAPACITY);
    if limit < 2 * Intake::MAX_EVENTS_PER_READ {
        warn!(
            "the limit of open files is {descriptors}: the worker serves at most {limit} readers at a time"
        );
    }
    limit.max(Intake::MAX_EVENTS_PER_READ)
}
