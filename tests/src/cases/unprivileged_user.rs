//! The traces of Xebec that an unprivileged user of a host finds: the case looks for everything of it as that user would, and nothing may
//! open, answer, run or tell.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::TarBuilder;

use crate::lab::{self, Lab, Running, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Looks around as the user and with the groups of its first arguments, and prints a line for all that opens. Its other
/// arguments are what is Xebec's: the directories, the processes, and a word that is in credentials. The last line counts.
const LOOK_AROUND: &str = r#"
import os, socket, stat, sys
user, groups, directories, processes, secret = sys.argv[1:6]
os.setgroups([int(group) for group in groups.split(",") if group])
os.setgid(int(user)); os.setuid(int(user))
directories = directories.split(":")
tried = 0
def tell(what, path):
    print(what, path)
def attempt(what, path, action):
    global tried
    tried += 1
    try:
        found = action()
    except OSError:
        return
    if found is not False:
        tell(what, path)
def opens(path, flags):
    os.close(os.open(path, flags | os.O_NONBLOCK))
def look(path):
    attempt("read", path, lambda: opens(path, os.O_RDONLY))
    attempt("write", path, lambda: opens(path, os.O_WRONLY))
    attempt("run", path, lambda: os.access(path, os.X_OK) or False)
    attempt("make in", path, lambda: opens(path + "/x", os.O_CREAT | os.O_WRONLY))
    # Sockets get their names after they were bound, so the kernel's list has others.
    if path.endswith(".sock"):
        attempt("ask", path, lambda: ask(path))
def ask(path):
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(3)
    peer.connect(path)
    peer.sendall(b'{"op": "status"}\n')
    return len(peer.recv(64)) > 0
def is_own(path):
    return any(path == one or path.startswith(one + "/") for one in directories)
# By the names that the caller knows, and by those that this user finds.
for path in sys.stdin.read().split("\0"):
    if path:
        look(path)
for top in directories:
    for where, below, files in os.walk(top):
        for name in below + files:
            look(os.path.join(where, name))
for line in open("/proc/self/mountinfo"):
    before, after = line.rstrip("\n").split(" - ", 1)
    fields = before.split(" ")
    if is_own(fields[4]):
        look(fields[4])
        harmless = {"nosuid", "nodev"} <= set(fields[5].split(","))
        if after.startswith("erofs ") and not harmless:
            tell("mounted with programs of root's", fields[4])
for line in open("/proc/net/unix").read().split("\n")[1:]:
    fields = line.split(None, 7)
    if len(fields) == 8:
        path = fields[7]
        if path.startswith("@") and "xebec" in path.lower():
            attempt("ask", path, lambda: ask("\0" + path[1:]))
        elif is_own(path):
            attempt("ask", path, lambda: ask(path))
for process in processes.split(","):
    at = "/proc/" + process
    for name in ["environ", "maps", "mem", "syscall", "stack", "map_files", "fd", "task/" + process + "/environ"]:
        attempt("of a process", at + "/" + name, lambda: len(os.listdir(at + "/" + name) if os.path.isdir(at + "/" + name)
            else open(at + "/" + name, "rb").read(1)) > 0)
    for name in ["root", "cwd", "exe"]:
        attempt("of a process", at + "/" + name, lambda: os.readlink(at + "/" + name))
    for name in ["cmdline", "status", "comm", "mountinfo"]:
        attempt("credentials in", at + "/" + name, lambda: secret.encode() in open(at + "/" + name, "rb").read() or False)
    attempt("signal", at, lambda: os.kill(int(process), 0))
print(tried)
"#;

/// A word of a login.
const SECRET: &str = "pass-of-a-login";

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "strangers/look-around".to_owned(),
        limit: Duration::from_secs(180),
        run: Box::new(look_around),
    }]
}

/// The things that a user finds open, and how many were tried.
fn found_by(world: &World, user: &str, groups: &str, processes: &str) -> Result<(Vec<String>, usize)> {
    let own = [world.path("root"), world.path("root-run")];
    let listed = run(Command::new("find")
        .args(&own)
        .args(["-not", "-type", "l", "-print0"]))?;
    let names = world.path("names");
    fs::write(&names, listed.stdout)?;
    let directories = own.map(|path| path.display().to_string()).join(":");
    let looked = run(Command::new("python3")
        .args(["-c", LOOK_AROUND, user, groups, &directories, processes, SECRET])
        .current_dir("/")
        .stdin(fs::File::open(&names)?))?;
    let said = String::from_utf8(looked.stdout)?;
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    let tried = lines.pop().context("nothing was said")?.parse()?;
    Ok((lines, tried))
}

/// Two users, one of whom has groups that administrators give: neither finds anything, beside a mount and a container, with the
/// service for containerd on.
fn look_around(world: &World) -> Result<Outcome> {
    for directory in [Some(world.path("").as_path()), world.directory.parent()]
        .into_iter()
        .flatten()
    {
        fs::set_permissions(directory, Permissions::from_mode(0o711))?;
    }
    let lab = Lab::new(world)?;
    let mut tar = TarBuilder::new();
    for directory in ["bin", "lib", "lib/x86_64-linux-gnu", "lib64", "etc"] {
        tar.directory(directory);
    }
    lab::put_programs(&mut tar, lab::BUSYBOX, 0o4755)?;
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .build();
    let names = lab.push_indexed(&image, "private")?;
    lab.daemon_settings("root", "[snapshotter]\nenabled = true\n")?;
    let logins = format!("{{\"{SECRET}\": 1}}");
    fs::write(world.path("root").join("logins.json"), logins)?;
    let mounted = lab.mount("root", &names.tag, &[])?;
    let words = [
        "run",
        "--rm",
        "--name",
        "one",
        &names.tag,
        "/bin/busybox",
        "sleep",
        "600",
    ];
    let running = Running(lab.spawn("root", &words)?);
    wait_until(Duration::from_secs(30), "the container runs", || {
        Ok(lab.xebec("root", &["ps"])?.out.contains("one"))
    })?;
    let status = world.daemon_status()?;
    let process = |name: &str| status[name].as_i64().context("no number");
    let processes = format!(
        "{},{},{}",
        process("keeper_pid")?,
        process("worker_pid")?,
        running.0.id()
    );
    let mut all = 0;
    for (user, groups) in [("65534", ""), ("1000", "1000,4,6,27,50,100,998,999")] {
        let (open, tried) = found_by(world, user, groups, &processes)?;
        ensure!(
            open.is_empty(),
            "user {user} of {tried} things: {:#?}",
            &open[..open.len().min(50)]
        );
        all += tried;
    }
    // An open thing is found: else the list would be empty of itself.
    let (open, _) = found_by(world, "0", "", &processes)?;
    for what in ["read ", "write ", "run ", "make in ", "ask ", "of a process "] {
        ensure!(
            open.iter().any(|line| line.starts_with(what)),
            "root finds nothing to {what}"
        );
    }
    for directory in ["root", "root-run"] {
        fs::set_permissions(world.path(directory), Permissions::from_mode(0o755))?;
    }
    let (open, _) = found_by(world, "65534", "", &processes)?;
    ensure!(!open.is_empty(), "what was opened is not found");
    drop(running);
    lab.umount("root", &mounted)?;
    lab.stop("root")?;
    Ok(Outcome::Passed(format!(
        "{all} attempts of two users, none of them succeeded"
    )))
}
