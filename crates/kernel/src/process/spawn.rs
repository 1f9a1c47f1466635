//! Starting a process with chosen descriptors at chosen numbers, in its own session if asked.
//!
//! `posix_spawn(3)` rather than fork and exec: no code of ours runs between the two, so there is nothing to get
//! wrong about locks, memory or descriptors in a copy of this process. The child starts with default dispositions and
//! with no signal blocked but those that are asked for, whatever the parent blocks.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::signals::set_of;
use super::{Child, is_for_this_process_only};

/// A process could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {}: {source}", .program.display())]
pub struct SpawnError {
    /// The program that was to be started.
    pub program: PathBuf,
    /// The error of the kernel.
    pub source: io::Error,
}

/// A process to be started.
#[derive(Debug)]
pub struct Spawn<'fd> {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    descriptors: Vec<(BorrowedFd<'fd>, RawFd)>,
    new_session: bool,
    blocked: Vec<i32>,
}

impl<'fd> Spawn<'fd> {
    /// `program` is a path (no search along `PATH`); it is also the process's name to itself.
    pub fn new(program: impl Into<PathBuf>) -> Spawn<'fd> {
        Spawn {
            program: program.into(),
            arguments: Vec::new(),
            environment: std::env::vars_os()
                .filter(|(name, _)| !is_for_this_process_only(name))
                .collect(),
            descriptors: Vec::new(),
            new_session: false,
            blocked: Vec::new(),
        }
    }

    /// This very executable, also after its file was replaced by an upgrade.
    pub fn own_executable() -> Spawn<'fd> {
        Spawn::new("/proc/self/exe")
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable; all others are inherited, except those by which descriptors were handed to this process.
    #[must_use]
    pub fn variable(mut self, name: impl AsRef<OsStr>, value: impl Into<OsString>) -> Self {
        self.environment.retain(|(other, _)| other != name.as_ref());
        self.environment.push((name.as_ref().to_owned(), value.into()));
        self
    }

    /// The child gets `descriptor` at `number` (0 to 2 are standard input, output, error). Whatever is not
    /// given here is closed in the child, if it is close-on-exec, as all descriptors of Rust programs are.
    #[must_use]
    pub fn descriptor(mut self, descriptor: BorrowedFd<'fd>, number: RawFd) -> Self {
        self.descriptors.push((descriptor, number));
        self
    }

    /// The child leads a session of its own: no terminal, and signals to the parent's group do not reach it.
    #[must_use]
    pub fn new_session(mut self) -> Self {
        self.new_session = true;
        self
    }

    /// The child starts with these signals blocked: one that comes before it has a handler would end it otherwise, and
    /// waits so until it [unblocks](super::unblock_signals) them.
    #[must_use]
    pub fn blocked(mut self, signals: &[i32]) -> Self {
        self.blocked.extend(signals);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`SpawnError`], also when the program cannot be executed.
    pub fn start(&self) -> Result<Child, SpawnError> {
        let error = |source| SpawnError {
            program: self.program.clone(),
            source,
        };
        let pid = self.spawn().map_err(error)?;
        let pid = Pid::from_raw(pid).ok_or_else(|| error(io::Error::from_raw_os_error(libc::ESRCH)))?;
        Child::new(pid).map_err(error)
    }

    fn spawn(&self) -> io::Result<libc::pid_t> {
        let program = c_string(self.program.as_os_str())?;
        let mut arguments = vec![program.clone()];
        for argument in &self.arguments {
            arguments.push(c_string(argument)?);
        }
        let mut environment = Vec::new();
        for (name, value) in &self.environment {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            environment.push(c_string(&entry)?);
        }
        let actions = Actions::new(&self.descriptors)?;
        let attributes = SpawnAttributes::new(self.new_session, &self.blocked)?;
        let (argv, envp) = (pointers(&arguments), pointers(&environment));
        let mut pid = 0;
        // SAFETY: every pointer is to an initialised object that lives until the end of this function; the
        // argument and environment arrays end with a null pointer. posix_spawn does not write through them.
        let code = unsafe {
            libc::posix_spawn(
                &mut pid,
                program.as_ptr(),
                actions.0.as_ptr(),
                attributes.0.as_ptr(),
                argv.as_ptr(),
                envp.as_ptr(),
            )
        };
        check(code).map(|()| pid)
    }
}

/// The changes that the child makes to descriptors before it executes the program.
struct Actions(Box<MaybeUninit<libc::posix_spawn_file_actions_t>>);

impl Actions {
    fn new(descriptors: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<Actions> {
        let mut inner = Box::new(MaybeUninit::uninit());
        // SAFETY: the call initialises the object that it is given.
        check(unsafe { libc::posix_spawn_file_actions_init(inner.as_mut_ptr()) })?;
        let mut actions = Actions(inner);
        // A source may have the number of another's target: first all go to numbers above both, then to
        // their targets. A duplicate at its target is not close-on-exec.
        let above = descriptors
            .iter()
            .map(|(fd, number)| fd.as_raw_fd().max(*number))
            .max()
            .unwrap_or(0)
            + 1;
        for ((fd, _), temporary) in descriptors.iter().zip(above..) {
            actions.duplicate(fd.as_raw_fd(), temporary)?;
        }
        for ((_, number), temporary) in descriptors.iter().zip(above..) {
            actions.duplicate(temporary, *number)?;
            // SAFETY: the object is initialised.
            check(unsafe { libc::posix_spawn_file_actions_addclose(actions.0.as_mut_ptr(), temporary) })?;
        }
        Ok(actions)
    }

    fn duplicate(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: the object is initialised; the numbers are only used in the child.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(self.0.as_mut_ptr(), from, to) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: `new` initialised the object.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

/// Signal mask, dispositions and session of the child.
struct SpawnAttributes(Box<MaybeUninit<libc::posix_spawnattr_t>>);

impl SpawnAttributes {
    fn new(new_session: bool, blocked: &[i32]) -> io::Result<SpawnAttributes> {
        let mut inner = Box::new(MaybeUninit::uninit());
        // SAFETY: the call initialises the object that it is given.
        check(unsafe { libc::posix_spawnattr_init(inner.as_mut_ptr()) })?;
        let mut attributes = SpawnAttributes(inner);
        let mut flags = (libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF) as libc::c_short;
        if new_session {
            flags |= libc::POSIX_SPAWN_SETSID;
        }
        let attr = attributes.0.as_mut_ptr();
        let mask = set_of(blocked)?;
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `attr` and `mask` are initialised, and so is `set` by sigfillset before it is read.
        unsafe {
            check(libc::posix_spawnattr_setflags(attr, flags))?;
            check(libc::posix_spawnattr_setsigmask(attr, &mask))?;
            libc::sigfillset(set.as_mut_ptr());
            check(libc::posix_spawnattr_setsigdefault(attr, set.as_ptr()))?;
        }
        Ok(attributes)
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: `new` initialised the object.
        unsafe { libc::posix_spawnattr_destroy(self.0.as_mut_ptr()) };
    }
}

fn check(code: i32) -> io::Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code))
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn pointers(strings: &[CString]) -> Vec<*mut c_char> {
    let strings = strings.iter().map(|string| string.as_ptr().cast_mut());
    strings.chain(std::iter::once(std::ptr::null_mut())).collect()
}

/// The path of a program by its name along `PATH`, for [`Spawn::new`].
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}
