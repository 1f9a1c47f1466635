//! Processes: starting them with chosen descriptors ([`Spawn`]), waiting for them ([`Child`]), signals as
//! something to poll ([`Signals`]), and facts about this process.

mod binary;
mod child;
mod filter;
mod handed_down;
mod init;
mod signals;
mod spawn;

pub use binary::{BinaryError, Linkage, linkage, own_linkage};
pub use child::{Child, Ending, send_signal};
pub use filter::{Instruction, filter_system_calls};
pub use handed_down::{HandedDown, hand_down, is_for_this_process_only};
pub use init::run_as_init;
pub use signals::{Signals, unblock_signals};
pub use spawn::{Spawn, SpawnError, find_program};

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::{fs, io};

use parking_lot::Mutex;
use rustix::io::FdFlags;
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::CapabilitySet;

/// Takes a descriptor that the parent put at `number`, and keeps it from being inherited further.
///
/// It is told apart from descriptors of this process by not being close-on-exec: all that Rust opens are, and so are those that
/// this function has already given out.
///
/// # Errors
/// `EBADF` when nothing is open there, `EBUSY` when it is not an inherited descriptor or was taken before.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    static TAKING: Mutex<()> = Mutex::new(());
    let _guard = TAKING.lock();
    // SAFETY: F_GETFD takes any number and only tells whether it is open, and its flags.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: it is open, it came from the parent, and the lock and the flag see to it that it is given out
    // once.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Raises the soft limit of open files to the hard one, and returns it. Each waiting reader needs one.
///
/// # Errors
/// The error of `setrlimit`.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Closes the descriptors that this process inherited and nobody here knows of, standard input, output and error aside. A file that
/// a shell has open must not stay open for as long as a daemon lives that was started from it.
///
/// This process's own descriptors are close-on-exec, and so are those that [`take_inherited`] and [`HandedDown::receive`] have
/// given out; the rest are closed. Call it after those, and before anybody else may count on an inherited number.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn close_strays() -> io::Result<()> {
    let mut strays = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<RawFd>().ok());
        strays.extend(number.filter(|number| *number > 2));
    }
    for number in strays {
        // SAFETY: F_GETFD takes any number and only tells whether it is open, and its flags.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: it is open, and as no code of this process opened or took it, nobody here owns it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
    Ok(())
}

/// Does something with another mask for the permissions of new files, such as starting a process that is to have it. It is done
/// by a thread of its own, so that no other thread of this process makes a file with that mask meanwhile.
///
/// # Errors
/// When there can be no other thread, or it cannot have a mask of its own.
pub fn with_umask<R: Send>(mask: u32, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().spawn_scoped(scope, move || {
            // SAFETY: it gives this thread a mask and a working directory of its own, and touches neither memory nor descriptors.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?;
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
            Ok(work())
        })?;
        worker
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread with a mask of its own panicked")))
    })
}

/// Lowers the priority of the calling thread, and of threads that it starts later (on Linux a priority is one thread's, setpriority(2)).
/// `nice` is 0 to 19: where others want all of a processor, a thread at 10 gets a tenth of it, and one at 19 a seventieth.
///
/// # Errors
/// The error of the kernel.
pub fn give_way(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// Marks the descriptors that this process inherited, standard input, output and error aside, so that no program that it starts
/// gets them. A runtime, and the programs in its container, would else have the files that a shell has open.
///
/// Not for a process that takes over descriptors by their numbers: [`take_inherited`] and [`HandedDown`] know them by not having
/// this mark.
///
/// # Errors
/// The error of `close_range`.
pub fn keep_descriptors() -> io::Result<()> {
    // SAFETY: with this flag it closes nothing, and only sets a mark on numbers that are open.
    let code = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// This process leaves no dump of its memory when it dies, and no other of the same user may read it: it holds credentials. Processes
/// that it starts leave no dump in a file, either.
///
/// # Errors
/// The error of the kernel.
pub fn keep_memory_to_itself() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(rustix::process::setrlimit(Resource::Core, none)?)
}

/// From here on the standard output and error of this process go to `to`, and a reader that waits for the end of these waits no
/// more.
///
/// # Errors
/// The error of `dup2`.
pub fn replace_output(to: impl std::os::fd::AsFd) -> io::Result<()> {
    rustix::stdio::dup2_stdout(&to)?;
    Ok(rustix::stdio::dup2_stderr(&to)?)
}

/// Sets the name that `ps` shows of this process (15 bytes of it), if called by its first thread.
pub fn set_name(name: &str) {
    // It can only fail for a name with a NUL in it.
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// The soft limit of open files.
pub fn open_file_limit() -> u64 {
    rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

/// A random identity of the running kernel: it changes with each boot.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// True when the calling thread may use a capability.
pub fn has_capability(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// The kernel's facts about a process (`proc_pid_stat(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Whether it has ended, and its parent has not waited for it.
    pub has_ended: bool,
    /// Its parent.
    pub parent: i32,
    /// When it was started, in clock ticks since the machine was.
    pub started: u64,
}

impl Stat {
    /// Of the process of that number; `None` if there is none.
    pub fn of(process: i32) -> Option<Self> {
        let line = fs::read(format!("/proc/{process}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&line))
    }

    /// The second field is its name in parentheses, which may itself hold anything.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            has_ended: matches!(fields.next()?, "Z" | "X" | "x"),
            parent: fields.next()?.parse().ok()?,
            started: fields.nth(17)?.parse().ok()?,
        })
    }
}

/// When a process was started, in clock ticks since the machine was. `None` if there is no such process, or if it has
/// ended and its parent has not waited for it (a zombie).
///
/// The kernel gives an id to another process some time after its process has ended. The id and the start time together
/// identify a process.
pub fn start_time(process: impl TryInto<i32>) -> Option<u64> {
    Stat::of(process.try_into().ok()?)
        .filter(|stat| !stat.has_ended)
        .map(|stat| stat.started)
}

/// Whether a process of this id runs. A zombie does not.
pub fn is_alive(process: u32) -> bool {
    start_time(process).is_some()
}

/// The processes that `parent` has for children, by the table of all.
pub fn children(parent: Pid) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |number: &i32| Stat::of(*number).is_some_and(|stat| stat.parent == parent.as_raw_pid());
    numbers.filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_has_no_start_time() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(start_time(child.id()).is_some() && is_alive(child.id()));
        child.kill().unwrap();
        // It stays in the table until its parent waits.
        let is_gone = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            start_time(child.id()).is_none()
        });
        assert!(is_gone, "a process that was killed still counts as one that runs");
        assert!(Stat::of(child.id().try_into().unwrap()).is_some_and(|stat| stat.has_ended));
        assert!(!is_alive(child.id()));
        child.wait().unwrap();
        assert!(!is_alive(child.id()) && !is_alive(u32::MAX));
    }

    #[test]
    fn a_name_in_parentheses_may_hold_anything() {
        let fields = "S 1 2 3 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 987 0";
        let stat = |line: String| Stat::parse(&line);
        let found = stat(format!("7 (a) Z 8 (b) {fields}"));
        let wanted = Stat {
            has_ended: false,
            parent: 1,
            started: 987,
        };
        assert_eq!(found, Some(wanted));
        let ended = stat(format!("7 (a) {}", fields.replacen('S', "Z", 1)));
        assert_eq!(ended.map(|stat| stat.has_ended), Some(true));
        assert_eq!(stat("7 (a) S 1".to_owned()), None);
        assert_eq!(stat(String::new()), None);
    }

    #[test]
    fn a_mask_is_for_one_thread_and_what_it_starts() {
        let told = |mask| {
            let ask = || std::process::Command::new("sh").args(["-c", "umask"]).output();
            let output = with_umask(mask, ask).and_then(|output| output);
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        assert_eq!(told(0o027).ok().as_deref(), Some("0027"));
        let before = fs::read_to_string("/proc/self/status").unwrap_or_default();
        assert_eq!(told(0o137).ok().as_deref(), Some("0137"));
        let mask = |status: &str| {
            status
                .lines()
                .find(|line| line.starts_with("Umask"))
                .map(str::to_owned)
        };
        let after = fs::read_to_string("/proc/self/status").unwrap_or_default();
        assert_eq!(mask(&before), mask(&after));
    }

    #[test]
    fn this_process_is_its_parents_child() {
        let own = rustix::process::getpid().as_raw_pid();
        let parent = rustix::process::getppid().map(children);
        assert!(parent.is_some_and(|its| its.contains(&own)));
    }
}
