//! A worker with a fake fill service: it writes the pattern by the ordinary path, in a few threads.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use xebec_fill::events::{self, Answer, Event, EventHandler, EventLoop};
use xebec_keeper::REPLACE;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::journal::LastWord;
use xebec_kernel::process::{Signals, Spawn};

use crate::reader::{FILES, PAGE, PAGES, pattern};
use crate::stage_kills;

/// Threads that fill, so that several events are under way when the worker dies.
const FILLERS: usize = 4;

/// Reading this page kills the worker that fills it.
pub const POISON_PAGE: u64 = 4711;

struct Filler {
    files: Vec<File>,
    by_id: HashMap<FileIdentity, u64>,
    queue: Mutex<Sender<(Event, Answer)>>,
    poisoned: bool,
    /// Where the first worker notes that it has an event, if it is to give all of them up when it is replaced.
    gives_up: Option<PathBuf>,
    given_up: Mutex<Vec<Answer>>,
}

pub fn main(directory: &Path, behaviour: &str) -> ExitCode {
    if behaviour == "kill-at-stages" {
        stage_kills::arm();
    }
    let inherited = events::take_inherited().unwrap();
    let signals = Signals::block(&[rustix::process::Signal::TERM.as_raw(), REPLACE]).unwrap();
    let (_group, journal, [listener, _snapshots], left) = inherited.into_parts();
    std::fs::write(directory.join("worker.pid"), std::process::id().to_string()).unwrap();
    if journal.was_unguarded() {
        std::fs::write(directory.join("was-unguarded"), "").unwrap();
        journal.set_unguarded(false);
    }
    if behaviour != "dies-with-its-keeper" {
        let (directory, behaviour) = (directory.to_owned(), behaviour.to_owned());
        xebec_keeper::watch::watch(journal.clone(), move || {
            Spawn::own_executable()
                .argument("as-keeper")
                .argument(&directory)
                .argument(&behaviour)
                .new_session()
                .start()
                .map_err(|error| error.to_string())
        });
    }

    let layers = directory.join("root/layers");
    let files: Vec<File> = (0..FILES)
        .map(|file| {
            File::options()
                .read(true)
                .write(true)
                .open(layers.join(format!("data{file}")))
                .unwrap()
        })
        .collect();
    let by_id = files
        .iter()
        .zip(0..)
        .map(|(file, number)| (identity(file), number))
        .collect();
    let (sender, receiver) = channel();
    let filler = Arc::new(Filler {
        files,
        by_id,
        queue: Mutex::new(sender),
        poisoned: behaviour == "poisoned",
        gives_up: (behaviour == "gives-up").then(|| directory.join("has-event")),
        given_up: Mutex::default(),
    });
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..FILLERS {
        let (filler, receiver) = (filler.clone(), receiver.clone());
        std::thread::spawn(move || filler.work(&receiver));
    }
    // The second one fills.
    let gives_up = filler.gives_up.as_ref().is_some_and(|noted| !noted.exists());
    let event_loop = EventLoop::start(left, filler.clone()).unwrap();

    while behaviour == "idle-after-client" && !directory.join("accept").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut last_word = LastWord::Finished;
    while !journal.stop_requested() {
        let mut polled = [
            PollFd::new(&signals, PollFlags::IN),
            PollFd::new(&listener, PollFlags::IN),
        ];
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let _ = rustix::event::poll(&mut polled, Some(&second));
        if signals.next().unwrap() == Some(REPLACE) {
            last_word = LastWord::HandedOver;
            event_loop.stop_reading();
            break;
        }
        let client = !polled[1].revents().is_empty();
        if client {
            // A client asks with nothing but its presence; the answer is the worker's process id.
            let (mut stream, _) = listener.accept().unwrap();
            // It may be gone: a keeper that finds its lock taken only looks whether somebody is there.
            let _ = std::io::Write::write_all(&mut stream, std::process::id().to_string().as_bytes());
            if behaviour == "idle-after-client" {
                break;
            }
        }
    }
    // As a runtime does that is shut down with tasks in it.
    filler.given_up.lock().clear();
    while event_loop.owed() > 0 && behaviour != "leaves-readers" && !gives_up {
        std::thread::sleep(Duration::from_millis(5));
    }
    event_loop.stop();
    std::fs::write(directory.join("counters"), format!("{:?}", journal.counters())).unwrap();
    journal.set_last_word(last_word);
    ExitCode::SUCCESS
}

impl Filler {
    fn work(&self, receiver: &Mutex<Receiver<(Event, Answer)>>) {
        loop {
            let Ok((event, answer)) = receiver.lock().recv() else {
                return;
            };
            self.fill(&event);
            answer.allow();
        }
    }

    fn fill(&self, event: &Event) {
        let pages = event.offset / PAGE as u64..(event.offset + event.count).div_ceil(PAGE as u64).min(PAGES);
        if self.poisoned && pages.contains(&POISON_PAGE) {
            // As a decoder would that runs into its own bug.
            std::process::abort();
        }
        let known = event.file.and_then(|file| self.by_id.get(&file).copied());
        let which = known.map_or(0..FILES, |file| file..file + 1);
        for file in which {
            for page in pages.clone() {
                self.files[file as usize]
                    .write_all_at(&pattern(file, page), page * PAGE as u64)
                    .unwrap();
            }
        }
    }
}

impl EventHandler for Filler {
    fn handle(self: Arc<Self>, event: Event, answer: Answer) {
        let never_answers = std::env::var_os("XEBEC_TEST_NEVER_ANSWER").is_some();
        if never_answers {
            // It stays in the journal, owed.
            std::mem::forget(answer);
            return;
        }
        if let Some(noted) = &self.gives_up
            && !noted.exists()
        {
            self.given_up.lock().push(answer);
            std::fs::write(noted, "").unwrap();
            return;
        }
        self.queue.lock().send((event, answer)).unwrap();
    }

    fn describe(&self, file: FileIdentity) -> Option<String> {
        self.by_id.get(&file).map(|number| format!("data{number}"))
    }
}

fn identity(file: &File) -> FileIdentity {
    FileIdentity::of(file).unwrap()
}
