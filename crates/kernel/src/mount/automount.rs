//! A directory that makes processes wait until something is mounted on it: a direct mount of autofs.
//!
//! A process that enters it waits until this process lets it (`Documentation/filesystems/autofs.rst`), and finds the mount that
//! came meanwhile. A process that waits in another mount namespace gets it there: propagation would not do, since a runtime may
//! make its own copy of this mount private before it enters. Processes of this one's process group do not wait: before there is
//! anything they enter an empty directory (`autofs_oz_mode`). `stat` does not enter (`statx` does, unless told), and neither does a
//! mount or an unmount of something there (`follow_automount`, `fs/namei.c`). But as long as a process waits, every process that
//! only passes through waits, too (`autofs_d_manage`).
//!
//! A waiting process can only be killed. If this process dies, waiting processes go on waiting, and so does every process that enters
//! later, until the directory is unmounted.

use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, NoArg, ioctl, opcode};
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree,
};
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::{Attributes, Context, Detached, MountError};
use crate::process::children;
/// The source that the table of mounts shows for an automount of this kind.
pub const DOOR_SOURCE: &str = "xebec";

/// Answers of this side (`linux/auto_fs.h`): the processes that wait for a token go on; they get `ENOENT`; all waiting processes
/// get `ENOENT`, and none will wait again.
const READY: u32 = opcode::none(0x93, 0x60);
const FAIL: u32 = opcode::none(0x93, 0x61);
const CATATONIC: u32 = opcode::none(0x93, 0x62);

/// The version of the protocol that has direct mounts.
const PROTOCOL: &str = "5";

/// The size of the kernel's message about a process that waits: `struct autofs_v5_packet`, one in each read of the pipe. Its token is
/// at this place, in the machine's byte order. Nothing here ever expires, so there is no other kind of packet.
const PACKET: usize = 304;
const TOKEN: std::ops::Range<usize> = 8..12;

/// A directory whose visitors wait at first. Dropped, it lets nobody wait any more: waiting processes get `ENOENT`, and later ones
/// enter the mount there, if only this empty directory. It stays mounted.
#[derive(Debug)]
pub struct Automount {
    root: OwnedFd,
    door: Arc<Door>,
    doorkeeper: Option<JoinHandle<()>>,
}

impl Automount {
    /// Mounts it on the directory `target`. A mount on it here is seen nowhere else, but for processes that wait in other mount namespaces
    /// and are children of `parent`, a process that `/proc` shows.
    ///
    /// # Errors
    /// [`MountError::Create`] where the kernel has no autofs, [`MountError::Attach`].
    pub fn attach(target: &Path, parent: Pid) -> Result<Self, MountError> {
        let context = Context::open("autofs", target.display().to_string())?;
        let failed = |step: &str, source: io::Error| MountError::Create {
            filesystem: "autofs",
            origin: target.display().to_string(),
            step: step.to_owned(),
            source,
            message: String::new(),
        };
        let (reader, writer) = io::pipe().map_err(|error| failed("pipe", error))?;
        context.set_option("source", DOOR_SOURCE)?;
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
            let mut guests = Guests {
                parent,
                target: target.to_owned(),
                served: Vec::new(),
            };
            move || door.keep(&reader, root.as_fd(), &mut guests)
        });
        let automount = Automount {
            root,
            door,
            doorkeeper: Some(doorkeeper.map_err(|error| failed("start a thread", error))?),
        };
        detached.attach(target)?;
        // Only once it is attached.
        let private = rustix::mount::mount_change(target, MountPropagationFlags::PRIVATE);
        private.map_err(|errno| {
            // By the descriptor: it is this mount.
            let _ = rustix::mount::unmount(detached.path(), UnmountFlags::DETACH);
            failed("make private", errno.into())
        })?;
        Ok(automount)
    }

    /// Lets everybody in, now that this is mounted on it here.
    ///
    /// # Errors
    /// When no descriptor is left; then all waiting processes are refused.
    pub fn open(&self, mounted: &Detached) -> io::Result<()> {
        let mounted = mounted.as_fd().try_clone_to_owned()?;
        self.door.answer(Some(mounted.into()));
        Ok(())
    }
}

impl Drop for Automount {
    fn drop(&mut self) {
        self.door.answer(None);
        // The kernel closes its end of the pipe, so the thread ends.
        let _ = make_catatonic(self.root.as_fd());
        if let Some(doorkeeper) = self.doorkeeper.take() {
            let _ = doorkeeper.join();
        }
    }
}

/// The answer to all who wait: a mount, or nothing ever.
type Answer = Option<Arc<OwnedFd>>;

#[derive(Debug, Default)]
struct Door {
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
}

impl Door {
    /// The first answer counts.
    fn answer(&self, answer: Answer) {
        self.answer.lock().get_or_insert(answer);
        self.answered.notify_all();
    }

    fn wait(&self) -> Answer {
        let mut answer = self.answer.lock();
        loop {
            match &*answer {
                Some(answer) => return answer.clone(),
                None => {
                    self.answered.wait(&mut answer);
                }
            }
        }
    }

    /// Answers each process that comes, until none can come any more.
    fn keep(&self, mut kernel: &PipeReader, root: BorrowedFd<'_>, guests: &mut Guests) {
        let mut packet = [0; PACKET];
        loop {
            match kernel.read(&mut packet) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(length) if length > TOKEN.end => {
                    let token = packet.get(TOKEN).and_then(|bytes| bytes.try_into().ok());
                    let token = u32::from_ne_bytes(token.unwrap_or_default());
                    let mounted = self.wait();
                    let is_there = mounted.is_some_and(|mounted| guests.serve(mounted.as_fd()).is_ok());
                    // A process that was killed meanwhile needs no answer.
                    let _ = tell(root, if is_there { READY } else { FAIL }, token);
                }
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Those who wait in other mount namespaces.
struct Guests {
    parent: Pid,
    target: PathBuf,
    /// Namespaces that have the mount, as `/proc` names them.
    served: Vec<PathBuf>,
}

impl Guests {
    /// Brings a mount of this namespace to all of them that lack it.
    fn serve(&mut self, mounted: BorrowedFd<'_>) -> io::Result<()> {
        let own = fs::read_link("/proc/self/ns/mnt")?;
        for child in children(self.parent) {
            let namespace = Path::new("/proc").join(child.to_string()).join("ns/mnt");
            // It may have ended.
            let Ok(name) = fs::read_link(&namespace) else {
                continue;
            };
            if name == own || self.served.contains(&name) {
                continue;
            }
            let namespace = fs::File::open(&namespace)?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let copy = open_tree(mounted, "", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
            attach_in(namespace.as_fd(), copy.as_fd(), &self.target)?;
            self.served.push(name);
        }
        Ok(())
    }
}

/// Attaches a detached mount in another mount namespace, by a thread that goes there and ends.
fn attach_in(namespace: BorrowedFd<'_>, mount: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    let go = || -> Result<(), Errno> {
        // SAFETY: the directory and root of this thread are its own from here on, its descriptors are not touched, and the
        // thread ends without having used any path but this one.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount))?;
        move_mount(mount, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    };
    let gone = std::thread::scope(|scope| scope.spawn(go).join());
    Ok(gone.map_err(|_| io::Error::other("a thread panicked"))??)
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
