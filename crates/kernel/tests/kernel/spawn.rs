//! Starting processes: descriptors, session, signals, errors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use xebec_kernel::process::{Ending, Signals, Spawn, boot_id, find_program, unblock_signals};

fn shell(script: &str) -> Spawn<'static> {
    Spawn::new(find_program("sh").unwrap()).arguments(["-c", script])
}

#[test]
fn descriptors_arrive_at_their_numbers_and_no_other_does() {
    // Numbers of two digits, as they have when other tests hold files.
    let _held: Vec<File> = (0..10).map(|_| File::open("/dev/null").unwrap()).collect();
    let (mut ours, theirs) = io::pipe().unwrap();
    let (mut other, other_theirs) = io::pipe().unwrap();
    // A source that has the number of the other's target, whichever way round they are.
    let numbers = [other_theirs.as_fd(), theirs.as_fd()].map(|fd| std::os::fd::AsRawFd::as_raw_fd(&fd));
    // By path: `>&` knows numbers of one digit only in some shells, and other tests may have those.
    let [to_first, to_second] = numbers.map(|number| format!("/proc/self/fd/{number}"));
    let script =
        format!("echo first >{to_first}; echo second >{to_second}; ls /proc/self/fd >{to_first}; exit 3");
    let child = shell(&script)
        .descriptor(theirs.as_fd(), numbers[0])
        .descriptor(other_theirs.as_fd(), numbers[1])
        .start()
        .unwrap();
    drop((theirs, other_theirs));
    assert_eq!(child.wait().unwrap(), Ending::Exited(3));
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("first"));
    let open: Vec<i32> = lines.map(|line| line.parse().unwrap()).collect();
    // Besides standard streams and ours there is the directory that ls reads, and whatever this test was itself
    // started with.
    let inherited = |fd: &i32| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        // O_CLOEXEC is shown in octal, with the other flags.
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap_or("0")
            .trim();
        !info.is_empty() && i64::from_str_radix(flags, 8).unwrap() & 0o2_000_000 == 0
    };
    let extra: Vec<&i32> = open
        .iter()
        .filter(|fd| !numbers.contains(fd) && !inherited(fd))
        .collect();
    assert!(extra.len() <= 1, "{extra:?} of {open:?}");
    text.clear();
    other.read_to_string(&mut text).unwrap();
    assert_eq!(text, "second\n");
}

#[test]
fn a_child_starts_with_no_signal_blocked() {
    let usr1 = rustix::process::Signal::USR1.as_raw();
    let _blocked = Signals::block(&[usr1]).unwrap();
    let child = shell("kill -USR1 $$; sleep 5").start().unwrap();
    assert_eq!(child.wait().unwrap(), Ending::Killed(usr1));
}

#[test]
fn a_signal_that_a_child_starts_with_blocked_waits() {
    let usr1 = rustix::process::Signal::USR1.as_raw();
    if std::env::var_os("XEBEC_TEST_BLOCKED").is_some() {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::USR1).unwrap();
        unblock_signals(&[usr1]).unwrap();
        unreachable!("the signal did not come");
    }
    let child = shell("kill -USR1 $$; exit 3").blocked(&[usr1]).start().unwrap();
    assert_eq!(child.wait().unwrap(), Ending::Exited(3));
    let child = Spawn::own_executable()
        .arguments([
            "--exact",
            "spawn::a_signal_that_a_child_starts_with_blocked_waits",
        ])
        .variable("XEBEC_TEST_BLOCKED", "1")
        .blocked(&[usr1])
        .start()
        .unwrap();
    assert_eq!(child.wait().unwrap(), Ending::Killed(usr1));
}

#[test]
fn a_new_session_is_a_new_session() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    // Field 6 of stat is the session.
    let child = shell("cut -d ' ' -f 1,6 /proc/$$/stat").new_session();
    let child = child.descriptor(theirs.as_fd(), 1).start().unwrap();
    let pid = child.pid();
    assert_eq!(child.wait().unwrap(), Ending::Exited(0));
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, format!("{pid} {pid}\n"));
}

#[test]
fn what_cannot_be_started_says_what_it_was() {
    let error = Spawn::new("/nowhere/program").start().unwrap_err();
    assert_eq!(error.program, Path::new("/nowhere/program"));
    assert_eq!(error.source.kind(), std::io::ErrorKind::NotFound);
    assert!(find_program("no-program-has-this-name").is_none());
}

#[test]
fn a_child_can_be_ended_and_is_reaped_once() {
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let child = shell("read line").descriptor(theirs.as_fd(), 0).start().unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap(), Ending::Killed(9));
    assert!(child.wait().is_err());
    assert!(child.kill().is_err());
}

#[test]
fn variables_are_set_and_others_inherited() {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let child = shell("echo \"$GREETING $PATH\"")
        .variable("GREETING", "a")
        .variable("GREETING", "hello");
    assert_eq!(
        child
            .descriptor(theirs.as_fd(), 1)
            .start()
            .unwrap()
            .wait()
            .unwrap(),
        Ending::Exited(0)
    );
    theirs.flush().unwrap();
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, format!("hello {}\n", std::env::var("PATH").unwrap()));
    assert_eq!(boot_id().unwrap().len(), 36);
}
