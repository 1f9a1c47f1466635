//! The common world of the tests of guarded mounts: an EROFS image made by `mkfs.erofs`, a cache directory with its data
//! file still empty, a guarded mount, and a filler that answers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use xebec_kernel::fanotify::Group;
use xebec_kernel::journal::{Journal, Verdict};
use xebec_kernel::mount;

/// Bytes of the file `large` in the image.
pub const LARGE: usize = 1 << 20;

/// Everything below one temporary directory.
pub struct World {
    pub directory: tempfile::TempDir,
    /// The contents of the data file, once all of it is there.
    pub truth: Vec<u8>,
    pub group: Arc<Group>,
}

impl World {
    /// `None` (and a line that says why) without `mkfs.erofs`.
    pub fn new() -> Option<World> {
        let directory = tempfile::Builder::new()
            .prefix("xebec-guarded-")
            .tempdir()
            .unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["tree", "layers", "guarded", "view", "elsewhere"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("tree/large"), noise(LARGE)).unwrap();
        std::fs::write(path("tree/small"), b"ten bytes.").unwrap();
        // Chunks of one page in a device of their own, as views have them.
        let made = Command::new("mkfs.erofs")
            .args(["--chunksize=4096", "-E", "nosbcrc"])
            .arg(format!("--blobdev={}", path("truth").display()))
            .arg(path("metadata"))
            .arg(path("tree"))
            .output();
        match made {
            Ok(output) if output.status.success() => {}
            Ok(output) => panic!("mkfs.erofs: {}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                println!("SKIPPED: mkfs.erofs of erofs-utils: {error}");
                return None;
            }
        }
        let truth = std::fs::read(path("truth")).unwrap();
        File::create(path("layers/data"))
            .unwrap()
            .set_len(truth.len() as u64)
            .unwrap();
        let group = Arc::new(Group::new().unwrap());
        Some(World {
            truth,
            group,
            directory,
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Binds `layers` to `guarded` and marks it, as the keeper does.
    pub fn guard(&self) {
        mount::bind_private(&self.path("layers"), &self.path("guarded")).unwrap();
        self.group.mark_mount(&self.path("guarded")).unwrap();
    }

    /// Mounts the image at `view` with `device` as its one device.
    pub fn mount(&self, device: &Path) -> mount::Detached {
        let erofs = mount::Erofs::new(self.path("metadata")).device(device);
        erofs
            .mount_at(&self.path("view"), mount::Attributes::empty())
            .unwrap()
    }

    pub fn large(&self) -> Vec<u8> {
        std::fs::read(self.path("tree/large")).unwrap()
    }

    /// Answers events until dropped, with the verdict that `decide` gives, after filling if it allows.
    pub fn fill(&self, decide: impl Fn(u64) -> Verdict + Send + 'static) -> Filler {
        let data = File::options()
            .write(true)
            .open(self.path("layers/data"))
            .unwrap();
        let (truth, group) = (self.truth.clone(), self.group.clone());
        let (ranges, done) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, finished) = (ranges.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            let journal = Journal::create().unwrap();
            let (mut intake, _) = Arc::new(journal).adopt().unwrap();
            let mut batch = Vec::new();
            while !finished.load(Ordering::SeqCst) {
                group.wait(Duration::from_millis(20)).unwrap();
                intake.read(&group, &mut batch).unwrap();
                for owed in batch.drain(..) {
                    seen.lock().push((owed.offset, owed.count));
                    let verdict = decide(owed.offset);
                    if verdict == Verdict::Allow {
                        let start = owed.offset as usize / 4096 * 4096;
                        let end = (start + 4096)
                            .max((owed.offset + owed.count) as usize)
                            .min(truth.len());
                        data.write_all_at(&truth[start..end], start as u64).unwrap();
                    }
                    owed.answer(&group, verdict).unwrap();
                }
            }
        });
        Filler {
            thread: Some(thread),
            ranges,
            done,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in ["view", "guarded", "elsewhere"] {
            while mount::is_mounted(&self.path(name)).unwrap_or(false) {
                let _ = rustix::mount::unmount(self.path(name), rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

/// A thread that answers.
pub struct Filler {
    thread: Option<JoinHandle<()>>,
    ranges: Arc<Mutex<Vec<(u64, u64)>>>,
    done: Arc<AtomicBool>,
}

impl Filler {
    /// Offset and count of every event so far.
    pub fn events(&self) -> Vec<(u64, u64)> {
        self.ranges.lock().clone()
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Bytes without zeros among them, so that an unfilled page cannot pass for a filled one.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 | 1
    };
    (0..length).map(|_| next()).collect()
}

/// Empties the page cache, so that reads reach the file systems again.
pub fn drop_caches() {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}
