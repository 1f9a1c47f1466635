//! Notes which pages of which layers are read through one mount of the blob cache, in the order of first access.
//!
//! It is a second fanotify group on that mount, in the process that records. The daemon's group is asked about the same
//! reads and brings in what is missing; this one looks and lets pass. So nothing depends on the recorder: if it dies,
//! its readers go on, and see the right bytes all the same.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use xebec_format::PAGE_SIZE;
use xebec_kernel::fanotify::{FanotifyError, Group, TakenEvent};
use xebec_kernel::file::FileIdentity;

use xebec_protocol::failure::Failure;

/// How often the recorder looks whether it is to end while nothing is read.
const LOOK: Duration = Duration::from_millis(20);

/// A data file that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// The layer's place in the image.
    pub layer: u16,
    /// Pages of its data space.
    pub pages: u64,
}

/// A page of a layer's data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Page {
    /// The layer's place in the image.
    pub layer: u16,
    /// The page's number.
    pub number: u64,
}

/// A recorder at work.
pub(crate) struct Recorder {
    orders: Arc<Orders>,
    thread: JoinHandle<Result<Vec<Page>, FanotifyError>>,
}

#[derive(Default)]
struct Orders {
    /// Nothing is noted any more.
    frozen: AtomicBool,
    /// The recorder is to end.
    ended: AtomicBool,
}

impl Recorder {
    /// Starts noting what is read of `files` through the mount at `mount`.
    ///
    /// # Errors
    /// When the kernel refuses the group or its mark.
    pub(crate) fn start(mount: &Path, files: HashMap<FileIdentity, Watched>) -> Result<Self, Failure> {
        let doing = "record what is read";
        let group = Group::new().map_err(|error| Failure::host(doing, error))?;
        group
            .mark_mount(mount)
            .map_err(|error| Failure::host(doing, error))?;
        let orders = Arc::new(Orders::default());
        let told = orders.clone();
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || listen(&group, &files, &told))
            .map_err(|error| Failure::host(doing, error))?;
        Ok(Self { orders, thread })
    }

    /// Pages that are read from now on are not noted.
    pub(crate) fn freeze(&self) {
        self.orders.frozen.store(true, Ordering::Release);
    }

    /// Ends it. Gives the pages in the order of first access.
    ///
    /// # Errors
    /// When events could not be read or answered; the pages that were noted until then are not worth having.
    pub(crate) fn finish(self) -> Result<Vec<Page>, Failure> {
        self.orders.ended.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(noted) => noted.map_err(|error| Failure::host("record what is read", error)),
            Err(_) => Err(Failure::host("record what is read", "the recorder panicked")),
        }
    }
}

fn listen(
    group: &Group,
    files: &HashMap<FileIdentity, Watched>,
    orders: &Orders,
) -> Result<Vec<Page>, FanotifyError> {
    let mut noted = Noted::default();
    while !orders.ended.load(Ordering::Acquire) {
        if !group.wait(LOOK)? {
            continue;
        }
        for taken in group.take()? {
            if !orders.frozen.load(Ordering::Acquire) {
                noted.note(&taken, files);
            }
            group.allow(taken.file.as_raw_fd())?;
        }
    }
    Ok(noted.pages)
}

#[derive(Default)]
struct Noted {
    pages: Vec<Page>,
    known: HashSet<Page>,
}

impl Noted {
    fn note(&mut self, taken: &TakenEvent, files: &HashMap<FileIdentity, Watched>) {
        let Ok(identity) = FileIdentity::of(&taken.file) else {
            return;
        };
        let Some(watched) = files.get(&identity) else {
            return;
        };
        let first = taken.event.offset / PAGE_SIZE;
        let end = match taken.event.count {
            // The kernel's way to say "all of it".
            0 => watched.pages,
            count => taken.event.offset.saturating_add(count).div_ceil(PAGE_SIZE),
        };
        for number in first..end.min(watched.pages) {
            let page = Page {
                layer: watched.layer,
                number,
            };
            if self.known.insert(page) {
                self.pages.push(page);
            }
        }
    }
}
