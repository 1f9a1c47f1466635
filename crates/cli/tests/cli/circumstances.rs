//! Every command where something of the host is not as it should be: it says so, and ends as its documentation says.

use std::process::Output;

use crate::doctor::in_own_namespace;
use crate::program::{Program, text};

const XEBEC: &str = env!("CARGO_BIN_EXE_xebec");

/// Exit codes of the documentation, but for those that a container's command has.
const DOCUMENTED: [i32; 8] = [0, 2, 3, 4, 5, 6, 7, 125];

/// Each command, of things that are not there. No registry listens at that port.
const COMMANDS: &[&str] = &[
    "cache gc --to 0",
    "cache pin none",
    "cache stat --json",
    "cache unpin none",
    "check none",
    "completion bash",
    "container prune --force",
    "container restore",
    "cp none:/file -",
    "daemon metrics",
    "daemon status",
    "daemon stop",
    "doctor",
    "exec none true",
    "explain --start",
    "explain none",
    "images --json",
    "index 127.0.0.1:1/app:1",
    "inspect --type container none",
    "install --dry-run --sysroot /nosuch",
    "kill none",
    "logout 127.0.0.1:1",
    "logs none",
    "network create back",
    "network inspect none",
    "network ls",
    "network prune",
    "network rm none",
    "pause none",
    "ps -a",
    "record --list",
    "record --rm none",
    "rename none other",
    "restart none",
    "rm none",
    "rmi none",
    "start none",
    "stats --no-stream",
    "stop none",
    "top none",
    "unpause none",
    "volume create data",
    "volume inspect none",
    "volume ls",
    "volume prune --force",
    "volume rm none",
    "wait none",
];

/// Exit code and errors, which must be as they are for every command.
fn checked(command: &str, output: &Output) -> (i32, String) {
    let (code, said) = (output.status.code(), text(&output.stderr));
    let documented = code.filter(|code| DOCUMENTED.contains(code));
    assert!(documented.is_some(), "xebec {command}: {}: {said}", output.status);
    assert!(!said.contains("panicked"), "xebec {command}: {said}");
    let report = [&*output.stdout, &*output.stderr].concat();
    assert!(
        code == Some(0) || !report.trim_ascii().is_empty(),
        "xebec {command} says nothing"
    );
    (documented.unwrap_or_default(), said)
}

/// Runs each command in a mount namespace of its own, after a shell's commands. Gives its exit code and errors; nothing if this
/// user cannot.
fn each(program: &Program, before: &str) -> Vec<(&'static str, (i32, String))> {
    let (root, run) = (program.root(), program.run());
    let mut seen = Vec::new();
    for command in COMMANDS {
        let script = format!(
            "{before}\nexport HOME={}\nexec timeout -k 1 60 {XEBEC} --root {} --run {} {command}",
            program.path("home").display(),
            root.display(),
            run.display()
        );
        let Some(output) = in_own_namespace(&script) else {
            return Vec::new();
        };
        seen.push((*command, checked(command, &output)));
    }
    // One of them may have started a daemon, which stays for a minute.
    program.output(&["daemon", "stop", "--force"]);
    seen
}

/// A failure of the host names one of the program's directories, or a file in it.
fn expect_a_place(program: &Program, command: &str, code: i32, said: &str) {
    // The doctor's report is on standard output, and `exec` has this code for each of its failures.
    if code != 125 || ["doctor", "exec none true"].contains(&command) {
        return;
    }
    let (root, run) = (program.root(), program.run());
    let is_named = [root, run]
        .iter()
        .any(|place| said.contains(&*place.to_string_lossy()));
    assert!(is_named, "xebec {command}: {said}");
}

#[test]
fn a_root_directory_that_is_read_only_is_named() {
    let program = Program::new();
    program.output(&["images"]);
    let root = program.root();
    let root = root.display();
    for (command, (code, said)) in each(
        &program,
        &format!("mount --bind {root} {root}\nmount -o remount,bind,ro {root}"),
    ) {
        if ["network create back", "volume create data"].contains(&command) {
            assert_eq!(code, 125, "xebec {command}: {said}");
            assert!(
                said.to_lowercase().contains("read-only"),
                "xebec {command}: {said}"
            );
        }
        expect_a_place(&program, command, code, &said);
    }
}

#[test]
fn a_disk_that_is_full_is_named() {
    let program = Program::new();
    program.output(&["images"]);
    let root = program.root();
    let root = root.display();
    for (command, (code, said)) in each(
        &program,
        &format!(
            "mount -t tmpfs none /mnt\ncp -a {root} /mnt/was\nmount -t tmpfs -o size=64k,mode=0700 none {root}\ncp -a /mnt/was/. {root}/\n\
             mkdir -m 0700 -p {root}/layers\nhead -c 1m /dev/zero 2>/dev/null >{root}/layers/full || true"
        ),
    ) {
        expect_a_place(&program, command, code, &said);
    }
}

/// Another user, to whom the directories are closed.
#[test]
fn a_user_who_is_not_root_is_told_so() {
    let program = Program::new();
    program.output(&["images"]);
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root becomes another user");
        return;
    }
    for command in COMMANDS {
        let words = [
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "timeout",
            "-k",
            "1",
            "60",
            XEBEC,
        ];
        let mut other = std::process::Command::new("setpriv");
        other.args(words).args(command.split(' ')).current_dir("/");
        let output = program.with_directories(&mut other).output();
        let Some(output) = output
            .ok()
            .filter(|output| ![126, 127].contains(&output.status.code().unwrap_or(0)))
        else {
            println!("SKIPPED: needs setpriv(1), and a program that others reach");
            return;
        };
        let (code, said) = checked(command, &output);
        if code == 125 && *command != "doctor" {
            assert!(said.contains("needs root"), "xebec {command}: {said}");
        }
    }
}
