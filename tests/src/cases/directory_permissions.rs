//! Other users of a host get nothing of Xebec's directories. An unprivileged user tries everything that is there.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::Mode;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit, setrlimit, umask};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::registry::{Fault, When};
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::lab::{self, Lab, Running, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Nobody, user and group.
const NOBODY: u32 = 65534;
/// Names each of the paths on its input that it can read, write to, run, or go into.
const TRY_ALL: &str = r#"while IFS= read -r path; do
    if [ -r "$path" ] || [ -w "$path" ] || [ -x "$path" ] || (: < "$path"); then printf '%s\n' "$path"; fi
done 2>/dev/null"#;
/// Lists all below a directory, mounts in it too.
const LIST: &[&str] = &["-not", "-name", "*\n*", "-not", "-type", "l"];

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("closed/{name}"),
        limit: Duration::from_secs(240),
        run: Box::new(run),
    };
    vec![
        case("other-users", other_users),
        case("any-mask", any_mask),
        case("containers-have-setuid", containers_have_setuid),
        case("mounts-have-none", mounts_have_none),
        case("peers-are-checked", peers_are_checked),
        case("nothing-is-handed-on", nothing_is_handed_on),
        case("no-core", no_core),
        case("record-keeps-its-memory", record_keeps_its_memory),
    ]
}

/// An image with a file that is root's alone, and a program that reads it for everybody.
fn image() -> Result<Image> {
    let mut tar = TarBuilder::new();
    for directory in ["bin", "lib", "lib/x86_64-linux-gnu", "lib64", "etc", "tmp"] {
        tar.directory(directory);
    }
    lab::put_programs(&mut tar, lab::BUSYBOX, 0o755)?;
    lab::put_programs(&mut tar, &["/bin/cat"], 0o755)?;
    let suid = Header::new("bin/suid-cat", Kind::File).mode(0o4755);
    tar.file_with(&suid, &fs::read("/bin/cat")?);
    tar.file_with(
        &Header::new("etc/shadow", Kind::File).mode(0o600),
        b"root's alone\n",
    );
    tar.entry(&Header::new("etc/null", Kind::CharDevice).device(1, 3).mode(0o666));
    Ok(ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .build())
}

/// Everything in these directories.
fn everything(directories: &[PathBuf]) -> Result<Vec<u8>> {
    let listed = run(Command::new("find").args(directories).args(LIST))?;
    Ok(listed.stdout)
}

/// The paths of these that an unprivileged user gets at.
fn open_to_nobody(paths: &[u8]) -> Result<Vec<String>> {
    let mut child = Command::new("sh")
        .args(["-c", TRY_ALL])
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    let paths = paths.to_owned();
    let writer = std::thread::spawn(move || input.write_all(&paths));
    let output = child.wait_with_output()?;
    writer
        .join()
        .map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    Ok(String::from_utf8(output.stdout)?
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Asks that all in a root and its run directory is out of reach.
fn expect_closed(world: &World, root: &str, when: &str) -> Result<usize> {
    let directories = [world.path(root), world.path(&format!("{root}-run"))];
    let mut paths = everything(&directories)?;
    let count = paths.iter().filter(|byte| **byte == b'\n').count();
    // If this is not found, nobody does not come as far as these directories.
    let control = world.path("open");
    fs::write(&control, "x")?;
    fs::set_permissions(&control, Permissions::from_mode(0o644))?;
    paths.extend(control.to_string_lossy().as_bytes());
    paths.push(b'\n');
    let mut open = open_to_nobody(&paths)?;
    ensure!(open.pop().is_some_and(|last| Path::new(&last) == control));
    ensure!(
        open.is_empty(),
        "{when}: of {count} paths an unprivileged user gets at {}: {:#?}",
        open.len(),
        &open[..open.len().min(60)]
    );
    for directory in directories {
        let status = fs::metadata(&directory)?;
        let (mode, owner) = (status.mode() & 0o7777, status.uid());
        ensure!(
            (mode, owner) == (0o700, 0),
            "{when}: {} has {mode:o} and is of {owner}",
            directory.display()
        );
    }
    expect_closed_files(&world.path(root), when)?;
    Ok(count)
}

/// Asks that what Xebec itself keeps is closed by its own permissions, too.
fn expect_closed_files(root: &Path, when: &str) -> Result<()> {
    for name in ["layers", "images", "views", "runtime"] {
        let directory = root.join(name);
        if directory.exists() {
            let open = run(Command::new("find").arg(directory).args(["-perm", "/077"]))?;
            let open = String::from_utf8_lossy(&open.stdout).into_owned();
            ensure!(open.is_empty(), "{when}: open by their own permissions: {open}");
        }
    }
    Ok(())
}

/// Other users can come as far as the case's directory.
fn let_others_come_here(world: &World) -> Result<()> {
    let own = world.directory.as_path();
    for directory in [Some(own), own.parent()].into_iter().flatten() {
        fs::set_permissions(directory, Permissions::from_mode(0o711))?;
    }
    Ok(())
}

/// After a pull, beside a mount and a container, by each way of starting, with the mask that closes nothing; and what an
/// earlier version left.
fn other_users(world: &World) -> Result<Outcome> {
    umask(Mode::empty());
    let_others_come_here(world)?;
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    expect_closed(world, "builder", "after index")?;

    lab.daemon_settings("root", "[snapshotter]\nenabled = true\n")?;
    lab.xebec("root", &["pull", &names.tag])?.expect(0, &[])?;
    expect_closed(world, "root", "after pull")?;
    let mounted = lab.mount("root", &names.tag, &[])?;
    let words = ["run", "--name", "one", &names.tag, "/bin/busybox", "sleep", "600"];
    let running = Running(lab.spawn("root", &words)?);
    wait_until(Duration::from_secs(30), "the container runs", || {
        let listed = lab.xebec("root", &["ps"])?;
        Ok(listed.out.contains("one"))
    })?;
    let count = expect_closed(world, "root", "beside a mount and a container")?;
    drop(running);
    lab.umount("root", &mounted)?;
    lab.stop("root")?;

    let program = world.path("xebec");
    fs::copy(world.binary(), &program)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    for words in [&["images"][..], &["ps"], &["pull", &names.tag]] {
        let as_root = world.xebec(words);
        let variables = as_root
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        let output = Command::new(&program)
            .args(words)
            .envs(variables)
            .stdin(Stdio::null())
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(125) && said.contains("Xebec needs root: run it with sudo"),
            "{words:?}: {said}"
        );
    }

    // As earlier versions left it.
    run(Command::new("chmod").args(["-R", "a+rX"]).arg(world.path("root")))?;
    run(Command::new("chmod").arg("755").arg(world.path("root-run")))?;
    lab.xebec("root", &["images"])?.expect(0, &[])?;
    expect_closed(world, "root", "after an upgrade")?;
    Ok(Outcome::Passed(format!("{count} paths, none within reach")))
}

/// Files that Xebec makes for itself have the same permissions whatever the mask of the process that starts it, by a first command and by
/// `daemon start`, as a unit does it: directories 0700, everything else 0600.
fn any_mask(world: &World) -> Result<Outcome> {
    let_others_come_here(world)?;
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    let mut count = 0;
    for mask in [0, 0o022, 0o077] {
        for way in ["command", "daemon"] {
            let name = format!("{way}-{mask:03o}");
            let mut listed = String::new();
            let mut under_mask = || -> Result<()> {
                umask(Mode::from_raw_mode(mask));
                lab.daemon_settings(&name, "[snapshotter]\nenabled = true\n")?;
                let mut daemon = None;
                if way == "daemon" {
                    daemon = Some(Running(lab.spawn(&name, &["daemon", "start"])?));
                    let socket = world.path(&format!("{name}-run/xebec.sock"));
                    wait_until(Duration::from_secs(30), "the daemon listens", || {
                        Ok(socket.exists())
                    })?;
                }
                let mounted = lab.mount(&name, &names.tag, &[])?;
                let words = [
                    "run",
                    "--rm",
                    "--user=1000:1000",
                    &names.tag,
                    "/bin/cat",
                    "/bin/cat",
                ];
                lab.xebec(&name, &words)?.expect(0, &[])?;
                expect_closed(world, &name, &format!("with {name}"))?;
                // Mounted files are as the image has them.
                let own = ["-xdev", "-not", "-type", "l", "-printf", "%m %y %p\\n"];
                let directories = [world.path(&name), world.path(&format!("{name}-run"))];
                let found = run(Command::new("find").args(directories).args(own))?;
                listed = String::from_utf8(found.stdout)?;
                lab.umount(&name, &mounted)?;
                lab.stop(&name)?;
                drop(daemon);
                Ok(())
            };
            let outcome = under_mask();
            umask(Mode::from_raw_mode(0o022));
            outcome?;
            for line in listed.lines() {
                let is_mount = line.contains("-run/views/") || line.contains("-run/guarded");
                // Which the case has written.
                let is_settings = line.ends_with(".toml");
                let right =
                    line.starts_with("700 d ") || (line.starts_with("600 ") && !line.starts_with("600 d"));
                ensure!(right || is_mount || is_settings, "with {name}: {line}");
                count += 1;
            }
        }
    }
    Ok(Outcome::Passed(format!("{count} paths, all closed")))
}

/// The options of the mounts of EROFS here.
fn options_of_views() -> Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let views = mounts.lines().filter(|line| line.contains(" - erofs "));
    Ok(views
        .filter_map(|line| line.split(' ').nth(5).map(str::to_owned))
        .collect())
}

fn expect_harmless_views(count: usize) -> Result<()> {
    let options = options_of_views()?;
    let harmless = |options: &&String| {
        let options: Vec<&str> = options.split(',').collect();
        ["ro", "nosuid", "nodev"]
            .iter()
            .all(|name| options.contains(name))
    };
    ensure!(
        options.len() == count && options.iter().filter(harmless).count() == count,
        "{options:?}"
    );
    Ok(())
}

/// A view has no setuid programs and no devices, and a container on it has both. Directories that are made in it for mounts are for its
/// users, though the caller's mask and Xebec's own close everything.
fn containers_have_setuid(world: &World) -> Result<Outcome> {
    umask(Mode::from_raw_mode(0o077));
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    let volume = world.path("volume");
    fs::create_dir(&volume)?;
    fs::set_permissions(&volume, Permissions::from_mode(0o755))?;
    fs::write(volume.join("file"), "shared\n")?;
    fs::set_permissions(volume.join("file"), Permissions::from_mode(0o644))?;
    let volume = format!("{}:/made/here", volume.display());
    let as_user = |program: &str, file: &str| {
        let words = [
            "run",
            "--rm",
            "--user=1000:1000",
            "-v",
            &volume,
            &names.tag,
            program,
            file,
        ];
        lab.xebec("root", &words)
    };
    as_user("/bin/cat", "/etc/shadow")?.expect(1, &["Permission denied"])?;
    as_user("/bin/suid-cat", "/etc/shadow")?.expect(0, &["root's alone"])?;
    as_user("/bin/cat", "/etc/null")?.expect(0, &[])?;
    as_user("/bin/cat", "/made/here/file")?.expect(0, &["shared"])?;
    // It lingers.
    expect_harmless_views(1)?;
    Ok(Outcome::Passed("by the overlay's own flags".to_owned()))
}

/// A mounted image runs no program as root and opens no device, unless that was asked for.
fn mounts_have_none(world: &World) -> Result<Outcome> {
    let_others_come_here(world)?;
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    let reads = |mounted: &Path, program: &str, file: &str| -> Result<bool> {
        let mut command = Command::new(mounted.join(program));
        let command = command.arg(mounted.join(file)).current_dir("/");
        Ok(command.uid(NOBODY).gid(NOBODY).output()?.status.success())
    };
    let secret = |mounted: &Path| reads(mounted, "bin/suid-cat", "etc/shadow");
    let device = |mounted: &Path| reads(mounted, "bin/cat", "etc/null");
    let mut tried = Vec::new();
    for options in [&[][..], &["--suid"], &["--dev"], &["--suid", "--dev"]] {
        let mounted = lab.mount("root", &names.tag, options)?;
        tried.push((secret(&mounted)?, device(&mounted)?));
        ensure!(options_of_views()?.len() == 2, "the view and the mount");
        lab.umount("root", &mounted)?;
        expect_harmless_views(1)?;
    }
    ensure!(
        tried == [(false, false), (true, false), (false, true), (true, true)],
        "read root's file by a setuid program, opened a device: {tried:?}"
    );
    Ok(Outcome::Passed("--suid and --dev".to_owned()))
}

/// Says something to a socket as somebody, and prints how much is answered.
const ASK: &str = r#"
import os, socket, sys
question = sys.argv[3].encode().decode("unicode_escape").encode("latin-1")
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(20)
peer.connect(sys.argv[2])
try:
    peer.sendall(question)
    print(len(peer.recv(65536)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"#;
/// A question to the daemon.
const STATUS: &str = r#"{"op": "status"}\n"#;
/// The beginning of HTTP/2, and settings, which are answered by settings.
const PREFACE: &str = r"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// The daemon answers its own user only, even if its sockets have been opened to all.
fn peers_are_checked(world: &World) -> Result<Outcome> {
    let_others_come_here(world)?;
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    lab.daemon_settings("root", "[snapshotter]\nenabled = true\n")?;
    let _mounted = lab.mount("root", &names.tag, &[])?;
    let run_directory = world.path("root-run");
    fs::set_permissions(&run_directory, Permissions::from_mode(0o755))?;
    for (name, question) in [("xebec.sock", STATUS), ("snapshots.sock", PREFACE)] {
        let socket = run_directory.join(name);
        fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
        let answered = |user: u32| -> Result<String> {
            let asked = run(Command::new("python3")
                .args(["-c", ASK, &user.to_string()])
                .arg(&socket)
                .arg(question))?;
            Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
        };
        let (root, nobody) = (answered(0)?, answered(NOBODY)?);
        ensure!(root != "0", "{name} does not answer root");
        ensure!(nobody == "0", "{name} answers nobody with {nobody} bytes");
    }
    Ok(Outcome::Passed("both sockets".to_owned()))
}

/// A runtime, and the container that it makes, get nothing of what the caller of `xebec run` has open.
fn nothing_is_handed_on(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    let (runtime, seen, secret) = (
        world.path("runc-that-looks"),
        world.path("seen"),
        world.path("secret"),
    );
    fs::write(&secret, "x")?;
    let script = format!(
        "#!/bin/sh\nls -l /proc/self/fd >> {}\nexec runc \"$@\"\n",
        seen.display()
    );
    fs::write(&runtime, script)?;
    fs::set_permissions(&runtime, Permissions::from_mode(0o755))?;
    let xebec = world.xebec(&["run", "--rm", "--runtime"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"exec 9< "$0"; exec "$@""#])
        .arg(&secret)
        .arg(xebec.get_program())
        .args(xebec.get_args())
        .arg(&runtime)
        .args([&names.tag, "/bin/busybox", "ls", "/proc/self/fd"])
        .envs(xebec.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let inside = run(&mut shell)?;
    let inside = String::from_utf8_lossy(&inside.stdout);
    let inside: Vec<&str> = inside.split_whitespace().collect();
    // The last is the directory that is listed.
    ensure!(inside == ["0", "1", "2", "3"], "in the container: {inside:?}");
    let seen = fs::read_to_string(&seen)?;
    ensure!(!seen.is_empty(), "the runtime did not look");
    let secret = secret.to_string_lossy();
    ensure!(
        !seen.contains(&*secret),
        "the runtime has what the caller has: {seen}"
    );
    Ok(Outcome::Passed("to a runtime, and to its container".to_owned()))
}

/// Dumps of any size.
const UNLIMITED: Rlimit = Rlimit {
    current: None,
    maximum: None,
};

/// A keeper and a worker that die as faults let them die leave no memory behind, though the limits allow it.
fn no_core(world: &World) -> Result<Outcome> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    if pattern.trim() != "core" {
        return Ok(Outcome::Skipped(format!("dumps go elsewhere: {pattern}")));
    }
    let cores = || -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir("/")?.map(|entry| Ok(entry?.path()));
        let is_core = |path: &PathBuf| path.to_string_lossy().starts_with("/core");
        let entries: Vec<PathBuf> = entries.collect::<Result<_>>()?;
        Ok(entries.into_iter().filter(is_core).collect())
    };
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    setrlimit(Resource::Core, UNLIMITED).context("lift the limit of dumps")?;
    let _mounted = lab.mount("root", &names.tag, &[])?;
    let before = cores()?;
    for name in ["worker_pid", "keeper_pid"] {
        let pid = world.daemon_status()?[name].as_i64().context("no number")?;
        let pid = Pid::from_raw(i32::try_from(pid)?).context("no process")?;
        // Whether the limit can be lifted again depends on where this runs.
        let _ = prlimit(Some(pid), Resource::Core, UNLIMITED);
        kill_process(pid, Signal::QUIT)?;
        wait_until(Duration::from_secs(60), "another takes its place", || {
            let status = world.daemon_status();
            Ok(status.is_ok_and(|status| {
                status[name]
                    .as_i64()
                    .is_some_and(|other| other != i64::from(pid.as_raw_pid()))
            }))
        })?;
    }
    let left: Vec<PathBuf> = cores()?
        .into_iter()
        .filter(|path| !before.contains(path))
        .collect();
    left.iter().for_each(|path| _ = fs::remove_file(path));
    ensure!(left.is_empty(), "{left:?}");
    Ok(Outcome::Passed("of a worker and a keeper".to_owned()))
}

/// `xebec record` is open to the runtime, and closed before it asks a registry itself, with the logins and keys that it reads then.
fn record_keeps_its_memory(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&image()?, "closed")?;
    setrlimit(Resource::Core, UNLIMITED).context("lift the limit of dumps")?;
    let is_push = |method: &str| matches!(method, "POST" | "PUT" | "PATCH");
    lab.registry.clear_log();
    lab.registry.inject(When::any().method("POST"), Fault::Hang);
    let words = ["record", &names.tag, "/bin/busybox", "cat", "/bin/busybox"];
    let mut recording = Running(lab.spawn("root", &words)?);
    wait_until(Duration::from_secs(60), "what was recorded is pushed", || {
        if let Some(status) = recording.0.try_wait()? {
            bail!("it ended before that: {status}");
        }
        let log = lab.registry.log();
        Ok(log.iter().any(|request| is_push(&request.head.method)))
    })?;
    let limits = fs::read_to_string(format!("/proc/{}/limits", recording.0.id()))?;
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = core.unwrap_or_default().split_whitespace().collect();
    ensure!(
        words.get(4..6) == Some(&["0", "0"][..]),
        "it would leave a dump: {core:?}"
    );
    Ok(Outcome::Passed("while it pushes".to_owned()))
}
