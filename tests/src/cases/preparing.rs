//! Containers that are prepared while their image is found: what is wrong with them is said before anything is pulled, and
//! who ends the command meanwhile leaves nothing behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, getpid, kill_process};
use serde_json::{Value, json};
use xebec_kernel::mount::automount::Automount;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::registry::{Fault, When};
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::lab::{Lab, Names, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How long the registry thinks about which image it is.
const THINKS: Duration = Duration::from_secs(8);
/// How soon something happens that nothing is waited for, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("preparing/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("exit-codes", exit_codes),
        case("ended-meanwhile", ended_meanwhile),
        case("killed-meanwhile", killed_meanwhile),
        case("killed-while-it-serves", killed_while_it_serves),
        case("unrecorded", unrecorded),
        case("begun", begun),
        case("moved", moved),
    ]
}

/// An image with a program, and a file that is none.
fn image(lab: &Lab<'_>) -> Result<Names> {
    let program = fs::read(World::go_tool("linger")?)?;
    let mut layer = TarBuilder::new();
    layer.directory("bin");
    layer.file_with(&Header::new("bin/linger", Kind::File).mode(0o755), &program);
    layer.file("bin/text", b"no program");
    let image = ImageBuilder::new().layer(&layer.into_bytes(), Compression::Gzip(1))?;
    lab.push_indexed(&image.build(), "app")
}

/// Docker's: scripts tell by them what went wrong.
fn exit_codes(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    let run = |arguments: &[&str]| lab.xebec("root", &[&["run", "--rm", &names.tag], arguments].concat());
    run(&["/bin/linger", "0s"])?.expect(0, &[])?;
    run(&["/bin/missing"])?.expect(127, &["/bin/missing"])?;
    run(&["/bin/text"])?.expect(126, &["/bin/text"])?;
    run(&[])?.expect(125, &["nothing to run"])?;
    // Known before the image is asked for.
    lab.registry.clear_log();
    for wrong in [
        (["--runtime", "/no/runtime"], "/no/runtime"),
        (
            ["--mount", "type=bind,source=/no/source,target=/data"],
            "/no/source",
        ),
        (["--name", "../no"], "../no"),
    ] {
        let (wrong, word) = wrong;
        let arguments = [&["run", "--rm"], &wrong[..], &[&names.tag, "/bin/linger"]].concat();
        lab.xebec("other", &arguments)?.expect(125, &[word])?;
    }
    ensure!(lab.registry.log().is_empty(), "{:?}", lab.registry.log());
    expect_nothing_left(&lab, "root")?;
    expect_nothing_left(&lab, "other")?;
    Ok(Outcome::Passed("0, 125, 126 and 127".to_owned()))
}

/// Where it cannot be noted that an image is here, nothing is started on it, and nothing stays mounted.
fn unrecorded(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    let records = lab.path("root/images");
    // The root gets its settings.
    lab.xebec("root", &["version"])?;
    // A file where the folder of records would be.
    ensure!(!records.exists(), "there are records before there is an image");
    fs::write(&records, b"")?;
    let mounted = lab.try_mount("root", &names.tag, &[])?;
    ensure!(mounted.code != 0, "{mounted:?}");
    mounted.expect(mounted.code, &["root/images"])?;
    let run = ["run", "--rm", &names.tag, "/bin/linger", "0s"];
    let ran = lab.xebec("root", &run)?;
    ensure!(ran.code != 0, "{ran:?}");
    ran.expect(ran.code, &["root/images"])?;
    expect_nothing_left(&lab, "root")?;
    let status = lab.status("root")?;
    let held = status.get("views").and_then(Value::as_array);
    ensure!(held.is_some_and(Vec::is_empty), "{status:#}");
    fs::remove_file(&records)?;
    lab.xebec("root", &run)?.expect(0, &[])?;
    Ok(Outcome::Passed(mounted.err.trim().to_owned()))
}

/// A command whose image takes long, and whose runtime has begun.
fn waiting(lab: &Lab<'_>, names: &Names) -> Result<Child> {
    lab.xebec("root", &["daemon", "metrics"])?;
    lab.registry.inject(When::manifest(), Fault::Delay(THINKS));
    let child = lab.spawn(
        "root",
        &["run", "--name", "early", &names.tag, "/bin/linger", "0s"],
    )?;
    let config = lab.path("root-run").join("bundles/early/config.json");
    wait_until(SOON, "a runtime that waits", || {
        Ok(config.is_symlink() || config.exists())
    })?;
    Ok(child)
}

fn expect_nothing_left(lab: &Lab<'_>, root: &str) -> Result<()> {
    for directory in [
        lab.path(root).join("containers"),
        lab.path(&format!("{root}-run/containers")),
        lab.path(&format!("{root}-run/bundles")),
    ] {
        let left: Vec<_> = match fs::read_dir(&directory) {
            Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
            Err(_) => Vec::new(),
        };
        ensure!(left.is_empty(), "left in {}: {left:?}", directory.display());
    }
    Ok(())
}

fn send(child: &Child, signal: Signal) -> Result<()> {
    kill_process(Pid::from_child(child), signal).context("send a signal")
}

fn ended_meanwhile(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    let mut codes = Vec::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let began = Instant::now();
        let mut child = waiting(&lab, &names)?;
        send(&child, signal)?;
        let status = child.wait()?;
        ensure!(began.elapsed() < THINKS, "it has waited for its image");
        ensure!(
            status.code() == Some(128 + signal.as_raw()),
            "{signal:?}: {status}"
        );
        expect_nothing_left(&lab, "root")?;
        codes.extend(status.code());
        lab.registry.clear_faults();
    }
    lab.xebec(
        "root",
        &["run", "--name", "early", &names.tag, "/bin/linger", "0s"],
    )?
    .expect(0, &[])?;
    Ok(Outcome::Passed(format!("{codes:?}")))
}

fn killed_meanwhile(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    let mut child = waiting(&lab, &names)?;
    send(&child, Signal::KILL)?;
    ensure!(child.wait()?.signal() == Some(9), "it was not killed");
    lab.registry.clear_faults();
    // The next command cleans up, and may have the name.
    let again = ["run", "--rm", "--name", "early", &names.tag, "/bin/linger", "0s"];
    lab.xebec("root", &again)?.expect(0, &[])?;
    expect_nothing_left(&lab, "root")?;
    Ok(Outcome::Passed("the name is free again".to_owned()))
}

/// Running another container does not end one whose `xebec run` was killed; it is listed, and its view is in use. When
/// it ends, the daemon finds that within a minute, without any further command.
fn killed_while_it_serves(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    let run = ["run", "--rm", "--name", "early", &names.tag, "/bin/linger", "10m"];
    let mut child = lab.spawn("root", &run)?;
    let listed = || -> Result<Vec<Value>> {
        let ended = lab.xebec("root", &["ps", "--json"])?;
        serde_json::from_str(&ended.out).with_context(|| format!("{ended:?}"))
    };
    // It is recorded as begun a moment after its command is let go. Until then it would end with the process that lets it go.
    let serves = |one: &Value| one.get("has_begun") == Some(&Value::Bool(true));
    wait_until(SOON, "a container that runs", || Ok(listed()?.iter().any(serves)))?;
    send(&child, Signal::KILL)?;
    child.wait()?;
    let other = ["run", "--rm", "--name", "other", &names.tag, "/bin/linger", "0s"];
    lab.xebec("root", &other)?.expect(0, &[])?;
    // Longer than it takes the daemon to look.
    std::thread::sleep(Duration::from_secs(25));
    let listed = listed()?;
    let [left] = &listed[..] else {
        anyhow::bail!("not the one that was left: {listed:?}");
    };
    ensure!(left.get("is_supervised") == Some(&Value::Bool(false)), "{left}");
    let views = |lab: &Lab<'_>| -> Result<usize> {
        let status = lab.status("root")?;
        Ok(status.get("views").and_then(Value::as_array).map_or(0, Vec::len))
    };
    ensure!(views(&lab)? == 1, "its view is not known any more");
    lab.logged(
        "root",
        &["still runs although its `xebec run` was killed", "early"],
    )?;
    let pid = left.get("pid").and_then(Value::as_i64).context("no pid")?;
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no process id")?;
    kill_process(pid, Signal::KILL)?;
    let ended = Instant::now();
    let limit = Duration::from_secs(60);
    wait_until(limit, "cleaned up", || {
        Ok(expect_nothing_left(&lab, "root").is_ok())
    })?;
    wait_until(limit, "the view is free", || Ok(views(&lab)? == 0))?;
    Ok(Outcome::Passed(format!(
        "listed and left alone; cleaned up {:?} after its end",
        ended.elapsed()
    )))
}

/// How many processes of a lab wait for a container's root.
fn waiting_for_a_root(lab: &Lab<'_>) -> usize {
    let place = lab.path("root-run").join("bundles").display().to_string();
    let waits = |process: &Path| {
        let read = |name| fs::read_to_string(process.join(name)).unwrap_or_default();
        read("wchan") == "autofs_wait" && read("mountinfo").contains(&place)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter(|entry| waits(&entry.path())).count()
}

/// A container of an image that was started here before is begun while the registry is asked what its name means.
fn begun(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let tried = lab.path("tried");
    fs::create_dir(&tried)?;
    match Automount::attach(&tried, getpid()) {
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
        Ok(_) => rustix::mount::unmount(&tried, rustix::mount::UnmountFlags::DETACH)?,
    }
    let names = image(&lab)?;
    let run = ["run", "--rm", "--name", "early", &names.tag, "/bin/linger", "0s"];
    lab.xebec("root", &run)?.expect(0, &[])?;
    let mut codes = Vec::new();
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let delay = signal.map_or(Duration::from_secs(1), |_| THINKS);
        lab.registry.inject(When::manifest(), Fault::Delay(delay));
        let mut child = lab.spawn("root", &run)?;
        wait_until(SOON, "a container that waits", || {
            Ok(waiting_for_a_root(&lab) == 1)
        })?;
        if let Some(signal) = signal {
            send(&child, signal)?;
        }
        let status = child.wait()?;
        codes.push(status.code().unwrap_or(-1));
        lab.registry.clear_faults();
        if signal == Some(Signal::KILL) {
            ensure!(waiting_for_a_root(&lab) == 1, "nobody was there to let it go");
            lab.xebec("root", &run)?.expect(0, &[])?;
        }
        wait_until(SOON, "nobody waits", || Ok(waiting_for_a_root(&lab) == 0))?;
        expect_nothing_left(&lab, "root")?;
    }
    ensure!(codes == [0, 143, -1], "{codes:?}");
    Ok(Outcome::Passed(format!("{codes:?}")))
}

/// It is begun as what the name meant last time; what runs is what it means now.
fn moved(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let program = fs::read(World::go_tool("linger")?)?;
    let version = |argument: &str| {
        let mut layer = TarBuilder::new();
        layer.directory("bin");
        layer.file_with(&Header::new("bin/linger", Kind::File).mode(0o755), &program);
        let image = ImageBuilder::new().layer(&layer.into_bytes(), Compression::Gzip(1))?;
        let command = json!(["/bin/linger", argument]);
        anyhow::Ok(image.config("Cmd", command).build())
    };
    let names = lab.push_indexed(&version("0s")?, "app")?;
    let run = ["run", "--rm", &names.tag];
    lab.xebec("root", &run)?.expect(0, &[])?;
    lab.push_indexed(&version("no duration")?, "app")?;
    let ended = lab.xebec("root", &run)?;
    ended.expect(2, &["no duration"])?;
    ensure!(
        !ended.err.contains("runc"),
        "of what is not made nothing is said: {ended:?}"
    );
    lab.push_indexed(&version("1ms")?, "app")?;
    lab.xebec("root", &run)?.expect(0, &["ready"])?;
    expect_nothing_left(&lab, "root")?;
    Ok(Outcome::Passed(ended.err.trim().to_owned()))
}
