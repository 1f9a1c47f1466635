//! The first process of a container: it starts the container's command, passes signals on to it, and reaps
//! every process that loses its parent.
//!
//! The kernel gives the first process of a PID namespace two duties that most programs do not know of. It is
//! the parent of all orphans, which stay as zombies until it waits for them. And no signal has its default
//! effect on it, so `SIGTERM` does nothing to a program that has no handler.
//!
//! The command gets a process group of its own, which is the foreground of the terminal if there is one, so
//! that a key that interrupts reaches it and its children once.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus};

use super::Signals;
use super::signals::{change_mask, set_of};

/// The last signal of Linux.
const LAST_SIGNAL: i32 = 64;

/// Signals that are not passed on: those that no process can catch, those of this process's own faults, those
/// of its children and of its terminal, and two numbers that a libc keeps for itself.
const OWN: [i32; 13] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGCHLD,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGTTIN,
    libc::SIGTTOU,
    32,
    33,
];

/// Runs a command as the first process of a container does, and returns the exit code of the command. That is 127 if it is not
/// there, 126 if it cannot be executed, and 128 and the number of the signal if one killed it.
///
/// # Errors
/// If signals cannot be caught, or processes cannot be waited for.
pub fn run_as_init(command: &[OsString]) -> io::Result<u8> {
    let signals = Signals::block(&caught())?;
    let child = match start(command) {
        Ok(child) => child,
        Err(error) => return Ok(report(command, &error)),
    };
    loop {
        if let Some(code) = reap(child)? {
            return Ok(code);
        }
        let mut polled = [PollFd::new(&signals, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
        while let Some(number) = signals.next()? {
            if number != libc::SIGCHLD {
                send(child, number);
            }
        }
    }
}

/// The signals that are read: those that are passed on, and that of a child that has ended.
fn caught() -> Vec<i32> {
    let passed_on = (1..=LAST_SIGNAL).filter(|number| !OWN.contains(number));
    passed_on.chain([libc::SIGCHLD]).collect()
}

/// Says why there is no command, as a shell does.
fn report(command: &[OsString], error: &io::Error) -> u8 {
    let name = command.first().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let _ = io::Write::write_all(&mut io::stderr(), format!("exec {name:?}: {error}\n").as_bytes());
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// Starts the command, with no signal blocked, in a process group of its own.
fn start(command: &[OsString]) -> io::Result<Pid> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let none = set_of(&[])?;
    let has_terminal = io::stdin().is_terminal();
    // SAFETY: between fork and exec it makes system calls only, which take no locks and no memory.
    unsafe { command.pre_exec(move || prepare(&none, has_terminal)) };
    Ok(Pid::from_child(&command.spawn()?))
}

/// Gives this process a group of its own, the terminal to it if there is one, and no blocked signals.
fn prepare(none: &libc::sigset_t, has_terminal: bool) -> io::Result<()> {
    // SAFETY: each call takes numbers only, or the address of a set that lives as long as the call.
    unsafe {
        libc::setpgid(0, 0);
        if has_terminal {
            // A background process that does so gets this signal.
            let before = libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            // A terminal that is not this session's has no foreground to take.
            libc::tcsetpgrp(0, libc::getpid());
            libc::signal(libc::SIGTTOU, before);
        }
    }
    change_mask(libc::SIG_SETMASK, none)
}

/// Reaps every process that has ended. Returns the exit code of the command, if it is among them.
fn reap(child: Pid) -> io::Result<Option<u8>> {
    let mut code = None;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => code = Some(exit_code(status)),
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(code),
            Err(error) => return Err(error.into()),
        }
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code & 0xff).ok())
        .unwrap_or(u8::MAX)
}

/// Sends a signal to the command, which was not reaped. One that has ended takes none.
fn send(child: Pid, number: i32) {
    // SAFETY: it takes numbers only.
    unsafe { libc::kill(child.as_raw_pid(), number) };
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader, PipeReader};
    use std::os::fd::AsFd;

    use super::super::{Child, Ending, Spawn};
    use super::*;

    const COMMAND: &str = "XEBEC_TEST_INIT_COMMAND";

    /// Not a test: with a command it is the parent of all that is below it, as a first process is.
    #[test]
    fn as_first_process() {
        let Some(command) = std::env::var_os(COMMAND) else {
            return;
        };
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
        let words: Vec<OsString> = command
            .to_str()
            .unwrap()
            .split('\u{1}')
            .map(OsString::from)
            .collect();
        std::process::exit(run_as_init(&words).unwrap().into());
    }

    /// A first process, and the output of its command.
    fn init(words: &[&str]) -> (Child, BufReader<PipeReader>) {
        let (output, writer) = io::pipe().unwrap();
        let null = File::open("/dev/null").unwrap();
        // The harness has other threads, which would take the signals if they did not start with them blocked.
        let child = Spawn::new(std::env::current_exe().unwrap())
            .arguments([
                "--exact",
                "process::init::tests::as_first_process",
                "--nocapture",
                "--quiet",
            ])
            .variable(COMMAND, words.join("\u{1}"))
            .descriptor(null.as_fd(), 0)
            .descriptor(writer.as_fd(), 1)
            .descriptor(writer.as_fd(), 2)
            .blocked(&caught())
            .start()
            .unwrap();
        (child, BufReader::new(output))
    }

    fn wait_for(output: &mut impl BufRead, wanted: &str) {
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 {
            if line.contains(wanted) {
                return;
            }
            line.clear();
        }
        panic!("no {wanted:?}");
    }

    fn ending(words: &[&str]) -> Ending {
        let (child, mut output) = init(words);
        io::copy(&mut output, &mut io::sink()).unwrap();
        child.wait().unwrap()
    }

    #[test]
    fn the_commands_exit_code_is_passed_on() {
        assert_eq!(ending(&["sh", "-c", "exit 7"]), Ending::Exited(7));
        assert_eq!(ending(&["sh", "-c", "kill -KILL $$"]), Ending::Exited(137));
        assert_eq!(ending(&["/no/such/program"]), Ending::Exited(127));
        assert_eq!(ending(&["/etc/passwd"]), Ending::Exited(126));
    }

    #[test]
    fn orphans_are_reaped() {
        // Children of shells that have ended, which end after them.
        let script = "for i in 1 2 3 4 5; do (sh -c 'sleep 0.1' &) ; done; sleep 0.5; \
                      grep -l \"^PPid:[[:space:]]*$PPID$\" /proc/[0-9]*/status | xargs grep -h ^State: | sort | uniq -c; echo looked";
        let (child, mut output) = init(&["sh", "-c", script]);
        let mut text = String::new();
        io::Read::read_to_string(&mut output, &mut text).unwrap();
        assert_eq!(child.wait().unwrap(), Ending::Exited(0), "{text}");
        assert!(text.contains("looked") && !text.contains("zombie"), "{text}");
    }

    #[test]
    fn signals_are_passed_on() {
        let script = "trap 'echo one' USR1; trap 'echo rt' RTMIN+3; trap 'echo bye; exit 3' TERM; echo ready; \
                      while :; do sleep 0.02; done";
        let (child, mut output) = init(&["bash", "-c", script]);
        wait_for(&mut output, "ready");
        let pid = Pid::from_raw(child.pid()).unwrap();
        for (number, answer) in [
            (libc::SIGUSR1, "one"),
            (libc::SIGRTMIN() + 3, "rt"),
            (libc::SIGTERM, "bye"),
        ] {
            send(pid, number);
            wait_for(&mut output, answer);
        }
        assert_eq!(child.wait().unwrap(), Ending::Exited(3));
    }
}
