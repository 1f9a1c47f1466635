//! A directory at whose door others wait until something is mounted on it: a direct mount of autofs.
//!
//! Whoever enters it waits until this process says that they may, and finds what was mounted meanwhile, also in a mount
//! namespace that receives that by propagation (`Documentation/filesystems/autofs.rst`). Processes of this one's process
//! group do not wait: before there is anything they enter an empty directory (`autofs_oz_mode`). `stat` does not enter, and
//! neither does who mounts something there (`follow_automount`, `fs/namei.c`).
//!
//! Who waits can only be killed. If this process dies meanwhile they wait on, until [`abandon`].

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, NoArg, ioctl, opcode};
use rustix::mount::MountPropagationFlags;

use super::{Attributes, Context, MountError, unmount_lazily};

/// What this side says (`linux/auto_fs.h`): who waits for a token goes on; who waits for it gets `ENOENT`; so does everybody who
/// waits, and nobody will wait again.
const READY: u32 = opcode::none(0x93, 0x60);
const FAIL: u32 = opcode::none(0x93, 0x61);
const CATATONIC: u32 = opcode::none(0x93, 0x62);

/// The version of the protocol that has direct mounts.
const PROTOCOL: &str = "5";

/// What the kernel says when somebody waits: `struct autofs_v5_packet`, one in each read of the pipe. Its token is at this
/// place, in the machine's byte order. Nothing here ever expires, so there is no other kind of packet.
const PACKET: usize = 304;
const TOKEN: std::ops::Range<usize> = 8..12;

/// `AUTOFS_SUPER_MAGIC`.
const MAGIC: rustix::fs::FsWord = 0x0187;

/// A directory whose door is closed at first. Dropped, it has none any more: who still waits gets `ENOENT`, and who comes later
/// enters what is mounted there, if only this empty directory. It stays mounted.
#[derive(Debug)]
pub struct Automount {
    root: OwnedFd,
    door: Arc<Door>,
    doorkeeper: Option<JoinHandle<()>>,
}

impl Automount {
    /// Mounts it on the directory `target`. What is mounted on it later is seen in every mount namespace that has received
    /// it, also where this one's mounts are private otherwise.
    ///
    /// # Errors
    /// [`MountError::Create`] where the kernel has no autofs, [`MountError::Attach`].
    pub fn attach(target: &Path) -> Result<Self, MountError> {
        let context = Context::open("autofs", target.display().to_string())?;
        let failed = |step: &str, source: io::Error| MountError::Create {
            filesystem: "autofs",
            origin: target.display().to_string(),
            step: step.to_owned(),
            source,
            message: String::new(),
        };
        let (reader, writer) = io::pipe().map_err(|error| failed("pipe", error))?;
        context.set_option("source", "xebec")?;
        context.set_option("fd", &writer.as_raw_fd().to_string())?;
        context.set_option("minproto", PROTOCOL)?;
        context.set_option("maxproto", PROTOCOL)?;
        context.set_flag("direct")?;
        let detached = context.mount(Attributes::empty())?;
        // The kernel has its own by now.
        drop(writer);
        let root = open_root(detached.as_fd()).map_err(|errno| failed("open", errno.into()))?;
        let door = Arc::new(Door::default());
        let thread = std::thread::Builder::new().name("automount".to_owned());
        let doorkeeper = thread.spawn({
            let (door, root) = (door.clone(), root.try_clone());
            let root = root.map_err(|error| failed("open", error))?;
            move || door.keep(&reader, root.as_fd())
        });
        let automount = Automount {
            root,
            door,
            doorkeeper: Some(doorkeeper.map_err(|error| failed("start a thread", error))?),
        };
        detached.attach(target)?;
        // Only once it is attached.
        let shared = rustix::mount::mount_change(target, MountPropagationFlags::SHARED);
        shared.map_err(|errno| {
            let _ = unmount_lazily(target);
            failed("share", errno.into())
        })?;
        Ok(automount)
    }

    /// Lets everybody in. Something is mounted on it now.
    pub fn open(&self) {
        self.door.answer(READY);
    }
}

impl Drop for Automount {
    fn drop(&mut self) {
        self.door.answer(FAIL);
        // The kernel closes its end of the pipe, so the thread ends.
        let _ = make_catatonic(self.root.as_fd());
        if let Some(doorkeeper) = self.doorkeeper.take() {
            let _ = doorkeeper.join();
        }
    }
}

/// What those who wait are told.
#[derive(Debug, Default)]
struct Door {
    answer: Mutex<Option<u32>>,
    answered: Condvar,
}

impl Door {
    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first answer counts.
    fn answer(&self, answer: u32) {
        self.lock().get_or_insert(answer);
        self.answered.notify_all();
    }

    fn wait(&self) -> u32 {
        let mut answer = self.lock();
        loop {
            match *answer {
                Some(answer) => return answer,
                None => {
                    answer = self.answered.wait(answer).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Answers whoever comes, until nobody can any more.
    fn keep(&self, mut kernel: &PipeReader, root: BorrowedFd<'_>) {
        let mut packet = [0; PACKET];
        loop {
            match kernel.read(&mut packet) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(length) if length > TOKEN.end => {
                    let token = packet.get(TOKEN).and_then(|bytes| bytes.try_into().ok());
                    let token = u32::from_ne_bytes(token.unwrap_or_default());
                    // Who was killed meanwhile needs no answer.
                    let _ = tell(root, self.wait(), token);
                }
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Tells those who wait for a token.
fn tell(root: BorrowedFd<'_>, answer: u32, token: u32) -> Result<(), Errno> {
    // SAFETY: these take a number (`autofs_root_ioctl_unlocked`, `fs/autofs/root.c`), and touch no memory of this process.
    unsafe {
        match answer {
            READY => ioctl(root, IntegerSetter::<READY>::new_usize(token as usize)),
            _ => ioctl(root, IntegerSetter::<FAIL>::new_usize(token as usize)),
        }
    }
}

fn make_catatonic(root: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: it takes no argument.
    unsafe { ioctl(root, NoArg::<CATATONIC>::new()) }
}

/// The root of a mount, to be told things. It is not entered by its name, so this does not wait.
fn open_root(mount: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(mount, ".", flags, Mode::empty())
}

/// Takes the door away at `target` when whoever was to open it has died: who waits gets `ENOENT`. Nothing happens to what is no
/// [`Automount`].
///
/// # Errors
/// When it cannot be looked at, or told.
pub fn abandon(target: &Path) -> io::Result<()> {
    // A path is not entered by that either, and what is mounted on it is what is opened.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = match rustix::fs::open(target, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    if rustix::fs::fstatfs(&top)?.f_type != MAGIC {
        return Ok(());
    }
    Ok(make_catatonic(open_root(top.as_fd())?.as_fd())?)
}
