//! Containers that run in the background and are kept: every command that users have for them, against the binary.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::registry::{Fault, When};
use xebec_testkit::tar::TarBuilder;

use crate::lab::{self, Lab, Names, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How soon something happens that nothing is waited for, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("containers/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("life", life),
        case("failures", failures),
        case("restart-policies", restart_policies),
        case("supervisor-killed", supervisor_killed),
        case("restored", restored),
        case("same-image", same_image),
        case("images-of-containers", images_of_containers),
        case("unknown-names", unknown_names),
        case("given-up", given_up),
    ]
}

/// An image with a shell.
fn image(lab: &Lab<'_>, file: &[u8]) -> Result<Names> {
    let image = ImageBuilder::new().layer(&base_layer(file)?, Compression::Gzip(1))?;
    lab.push_indexed(&image.build(), "app")
}

/// A layer with a shell.
fn base_layer(file: &[u8]) -> Result<Vec<u8>> {
    let mut layer = TarBuilder::new();
    for directory in ["bin", "etc", "lib", "lib/x86_64-linux-gnu", "lib64", "tmp"] {
        layer.directory(directory);
    }
    lab::put_programs(&mut layer, lab::BUSYBOX, 0o755)?;
    layer.file("etc/version", file);
    Ok(layer.into_bytes())
}

/// `run -d` of a shell's script.
fn run_detached(lab: &Lab<'_>, names: &Names, name: &str, more: &[&str], script: &str) -> Result<String> {
    let mut words = vec!["run", "-d", "--name", name];
    words.extend(more);
    words.extend([names.tag.as_str(), "/bin/busybox", "sh", "-c", script]);
    let ran = lab.xebec("root", &words)?;
    ran.expect(0, &[])?;
    let id = ran.out.trim().to_owned();
    ensure!(
        id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{ran:?}"
    );
    Ok(id)
}

fn shown(lab: &Lab<'_>, name: &str) -> Result<Value> {
    let shown = lab.xebec("root", &["inspect", "--type", "container", name])?;
    shown.expect(0, &[])?;
    let mut list: Vec<Value> = serde_json::from_str(&shown.out).with_context(|| format!("{shown:?}"))?;
    list.pop().context("nothing is shown")
}

fn status(lab: &Lab<'_>, name: &str) -> Result<String> {
    let shown = shown(lab, name)?;
    Ok(shown["status"].as_str().unwrap_or_default().to_owned())
}

fn life(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1")?;
    let script = "echo begun >> /times; cat /times; echo error >&2; trap 'echo bye; exit 6' TERM; while :; do sleep 0.05; done";
    let id = run_detached(&lab, &names, "web", &["--label", "tier=front"], script)?;
    let root = |words: &[&str]| lab.xebec("root", words);
    root(&["ps"])?.expect(0, &[&id, "web", "Up ", &names.tag])?;
    let quiet = root(&["ps", "-q", "--filter", "label=tier=front", "--filter", "name=we"])?;
    ensure!(quiet.out.trim() == id, "{quiet:?}");
    wait_until(SOON, "a log", || {
        Ok(root(&["logs", "web"])?.out.contains("begun"))
    })?;
    let logs = root(&["logs", &id[..6]])?;
    ensure!(
        (logs.out.as_str(), logs.err.as_str()) == ("begun\n", "error\n"),
        "{logs:?}"
    );
    root(&["logs", "-t", "--tail", "1", "--since", "10m", "web"])?.expect(0, &["Z "])?;
    let taken = root(&["run", "-d", "--name", "web", &names.tag, "/bin/busybox", "true"])?;
    taken.expect(125, &["web", "xebec stop web"])?;
    root(&["rm", "web"])?.expect(125, &["running", "--force"])?;

    let mut following = lab.spawn("root", &["logs", "-f", "web"])?;
    let began = Instant::now();
    root(&["stop", "-t", "30", "web"])?.expect(0, &["web"])?;
    ensure!(
        began.elapsed() < Duration::from_secs(20),
        "it was not asked to stop"
    );
    let is_over = || Ok(following.try_wait()?.is_some_and(|ended| ended.success()));
    wait_until(SOON, "who follows the log sees its end", is_over)?;
    root(&["ps", "-a"])?.expect(0, &["Exited (6) ", "web"])?;
    ensure!(
        !root(&["ps"])?.out.contains("web"),
        "it is listed as one that runs"
    );
    root(&["wait", "web"])?.expect(0, &["6"])?;
    root(&["start", "web"])?.expect(0, &["web"])?;
    let twice = || Ok(root(&["logs", "web"])?.out.ends_with("begun\nbegun\n"));
    wait_until(SOON, "its layer is the same", twice)?;
    root(&["restart", "web"])?.expect(0, &["web"])?;
    root(&["kill", "web"])?.expect(0, &["web"])?;
    root(&["wait", "web"])?.expect(0, &["137"])?;
    root(&["rename", "web", "shop"])?.expect(0, &[])?;
    root(&["stop", "web"])?.expect(3, &["web", "ps -a"])?;
    root(&["rm", "shop", &id])?.expect(3, &[&id])?;
    ensure!(root(&["ps", "-aq"])?.out.is_empty(), "it is listed still");
    let left: Vec<_> = fs::read_dir(lab.path("root/containers"))?.flatten().collect();
    ensure!(left.is_empty(), "{left:?}");

    // Several are stopped side by side, each of which takes its time.
    let deaf = ["one", "two", "three"];
    for name in deaf {
        run_detached(
            &lab,
            &names,
            name,
            &[],
            "trap '' TERM; echo deaf; while :; do sleep 0.05; done",
        )?;
    }
    for name in deaf {
        wait_until(SOON, "it listens to no signal", || {
            Ok(root(&["logs", name])?.out == "deaf\n")
        })?;
    }
    let began = Instant::now();
    root(&[&["stop", "-t", "10"], &deaf[..]].concat())?.expect(0, &["one\ntwo\nthree"])?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(20), "one after the other: {took:?}");
    root(&[&["rm"], &deaf[..]].concat())?.expect(0, &[])?;

    // A container that is removed when it ends, and one that stays.
    run_detached(&lab, &names, "gone", &["--rm"], "sleep 1; exit 9")?;
    root(&["wait", "gone"])?.expect(0, &["9"])?;
    wait_until(SOON, "it is gone", || Ok(root(&["ps", "-aq"])?.out.is_empty()))?;
    run_detached(&lab, &names, "ended", &[], "exit 0")?;
    root(&["wait", "ended"])?.expect(0, &["0"])?;
    let followed = root(&["start", "-a", "ended"])?;
    followed.expect(0, &[])?;
    root(&["container", "prune", "--force"])?.expect(0, &["ended"])?;
    lab.stop("root")?;
    Ok(Outcome::Passed(id))
}

fn failures(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1")?;
    let root = |words: &[&str]| lab.xebec("root", words);
    let detached = |words: &[&str]| root(&[&["run", "-d"], words].concat());
    detached(&["--name", "web", &names.tag, "/no/such"])?.expect(127, &["/no/such"])?;
    detached(&["--name", "web", &names.tag, "/etc/version"])?.expect(126, &["/etc/version"])?;
    detached(&["--name", "../web", &names.tag])?.expect(125, &["cannot name"])?;
    let missing = format!("{}/none:latest", lab.registry.host());
    detached(&["--name", "web", &missing])?.expect(125, &["none"])?;
    detached(&["--restart", "sometimes", &names.tag])?.expect(125, &["sometimes"])?;
    root(&["run", "--restart", "always", &names.tag])?.expect(125, &["--detach"])?;
    root(&["start", "web"])?.expect(3, &["web"])?;
    ensure!(root(&["ps", "-aq"])?.out.is_empty(), "something is left");
    Ok(Outcome::Passed("125, 126, 127, and nothing is left".to_owned()))
}

fn restart_policies(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1")?;
    let root = |words: &[&str]| lab.xebec("root", words);
    run_detached(
        &lab,
        &names,
        "twice",
        &["--restart", "on-failure:2"],
        "echo one; exit 4",
    )?;
    root(&["wait", "twice"])?.expect(0, &["4"])?;
    let logs = root(&["logs", "twice"])?;
    ensure!(logs.out == "one\none\none\n", "{logs:?}");
    ensure!(
        shown(&lab, "twice")?["restarts"] == 2,
        "{:#}",
        shown(&lab, "twice")?
    );
    run_detached(
        &lab,
        &names,
        "always",
        &["--restart", "unless-stopped"],
        "echo run; sleep 0.2",
    )?;
    let again = || Ok(root(&["logs", "always"])?.out.lines().count() >= 3);
    wait_until(SOON, "it is started again", again)?;
    root(&["stop", "always"])?.expect(0, &[])?;
    let runs = root(&["logs", "always"])?.out;
    std::thread::sleep(Duration::from_secs(2));
    ensure!(
        root(&["logs", "always"])?.out == runs,
        "it was started although a user had stopped it"
    );
    ensure!(
        status(&lab, "always")? == "exited",
        "{:#}",
        shown(&lab, "always")?
    );
    root(&["rm", "always", "twice"])?.expect(0, &[])?;
    Ok(Outcome::Passed(format!("{} runs", runs.lines().count())))
}

fn supervisor_killed(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1")?;
    let root = |words: &[&str]| lab.xebec("root", words);
    run_detached(&lab, &names, "web", &[], "sleep 600")?;
    let supervisor = shown(&lab, "web")?["supervisor"]
        .as_i64()
        .context("no supervisor")?;
    let supervisor = Pid::from_raw(i32::try_from(supervisor)?).context("no process id")?;
    kill_process(supervisor, Signal::KILL)?;
    let is_orphan = || Ok(shown(&lab, "web")?["is_supervised"] == false);
    wait_until(SOON, "it has no supervisor", is_orphan)?;
    root(&["ps"])?.expect(0, &["no supervisor", "xebec stop web"])?;
    root(&["stop", "-t", "1", "web"])?.expect(0, &[])?;
    root(&["ps", "-a"])?.expect(0, &["Exited (unknown)"])?;
    root(&["wait", "web"])?.expect(125, &["not known"])?;
    root(&["start", "web"])?.expect(0, &[])?;
    root(&["rm", "-f", "web"])?.expect(0, &["web"])?;
    ensure!(root(&["ps", "-aq"])?.out.is_empty(), "something is left");
    Ok(Outcome::Passed("stopped, started and removed".to_owned()))
}

/// After a boot, and after a supervisor was killed, containers are started again whose policy asks for it.
fn restored(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1")?;
    let root = |words: &[&str]| lab.xebec("root", words);
    for (name, policy) in [("always", "always"), ("stopped", "unless-stopped"), ("no", "no")] {
        run_detached(&lab, &names, name, &["--restart", policy], "sleep 600")?;
    }
    root(&["stop", "-t", "0", "stopped"])?.expect(0, &[])?;
    let end = |name: &str| -> Result<()> {
        let container = shown(&lab, name)?;
        for process in ["supervisor", "pid"] {
            let number = container[process].as_i64().context("no process")?;
            let process = Pid::from_raw(i32::try_from(number)?).context("no process id")?;
            kill_process(process, Signal::KILL)?;
        }
        Ok(())
    };
    end("always")?;
    end("no")?;
    let asked = Instant::now();
    // By the daemon, which looks every 20 seconds.
    let runs = || Ok(status(&lab, "always")? == "running");
    wait_until(Duration::from_secs(60), "the daemon has it started again", runs)?;
    let took = asked.elapsed();
    let before = shown(&lab, "always")?["pid"].clone();
    end("always")?;
    let is_again = || {
        root(&["container", "restore"])?.expect(0, &[])?;
        let now = shown(&lab, "always")?;
        Ok(now["status"] == "running" && now["pid"] != before)
    };
    wait_until(SOON, "it is started again", is_again)?;
    for name in ["stopped", "no"] {
        ensure!(status(&lab, name)? == "exited", "{:#}", shown(&lab, name)?);
    }

    // As its service, which is told to stop after it has started one.
    let before = shown(&lab, "always")?["pid"].clone();
    end("always")?;
    let mut watch = lab.spawn("root", &["container", "restore", "--watch"])?;
    let is_again = || {
        let now = shown(&lab, "always")?;
        Ok(now["status"] == "running" && now["pid"] != before)
    };
    wait_until(Duration::from_secs(60), "it is started by who watches", is_again)?;
    kill_process(Pid::from_child(&watch), Signal::TERM)?;
    let ended = wait_until(SOON, "who watches ends at a signal", || {
        Ok(watch.try_wait()?.is_some())
    });
    if ended.is_err() {
        let _ = watch.kill();
    }
    ended?;
    root(&["rm", "-f", "always", "stopped", "no"])?.expect(0, &[])?;
    Ok(Outcome::Passed(format!("the daemon took {took:?}")))
}

/// A container that is started again has the image that its layer lies on.
fn same_image(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1\n")?;
    let root = |words: &[&str]| lab.xebec("root", words);
    run_detached(&lab, &names, "old", &[], "/bin/busybox cat /etc/version")?;
    root(&["wait", "old"])?.expect(0, &["0"])?;
    let first = names;
    let names = image(&lab, b"2\n")?;
    run_detached(
        &lab,
        &names,
        "new",
        &["--rm"],
        "/bin/busybox cat /etc/version; sleep 600",
    )?;
    root(&["start", "-a", "old"])?.expect(0, &[])?;
    let logs = root(&["logs", "old"])?;
    ensure!(logs.out == "1\n1\n", "{logs:?}");
    let is_new = || Ok(root(&["logs", "new"])?.out == "2\n");
    wait_until(SOON, "the tag names the new image", is_new)?;
    root(&["rm", "-f", "new"])?.expect(0, &[])?;
    // Its tag was removed.
    let gone = || Fault::Answer {
        status: 404,
        content_type: "application/json",
        body: r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#.to_owned(),
    };
    for method in ["GET", "HEAD"] {
        let tag = When::any().method(method).path("/manifests/latest");
        lab.registry.inject(tag, gone());
    }
    root(&["start", "-a", "old"])?.expect(0, &[])?;
    // Its layers are complete, and its registry is away.
    root(&["pull", "--complete", &first.digest])?.expect(0, &[])?;
    lab.registry.set_down(true);
    root(&["start", "-a", "old"])?.expect(0, &[])?;
    let logs = root(&["logs", "old"])?;
    ensure!(logs.out == "1\n1\n1\n1\n", "{logs:?}");
    root(&["rm", "old"])?.expect(0, &[])?;
    Ok(Outcome::Passed(
        "the tag had moved, was removed, and its registry went".to_owned(),
    ))
}

/// An image goes that only shares a layer with one in use; one of a container does not, unless that is forced.
fn images_of_containers(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let root = |words: &[&str]| lab.xebec("root", words);
    let base = base_layer(b"1\n")?;
    let mut own = TarBuilder::new();
    own.file("etc/own", b"own\n");
    let below = ImageBuilder::new().layer(&base, Compression::Gzip(1))?.build();
    let above = ImageBuilder::new().layer(&base, Compression::Gzip(1))?;
    let above = above.layer(&own.into_bytes(), Compression::Gzip(1))?.build();
    let (below, above) = (
        lab.push_indexed(&below, "below")?,
        lab.push_indexed(&above, "above")?,
    );
    run_detached(
        &lab,
        &above,
        "web",
        &[],
        "cat /etc/own; exec /bin/busybox sleep 600",
    )?;
    root(&["pull", &below.tag])?.expect(0, &[])?;
    // Its only layer is one of the container's, which stays.
    root(&["rmi", &below.tag])?.expect(0, &["removed"])?;
    root(&["exec", "web", "/bin/busybox", "cat", "/etc/version"])?.expect(0, &["1"])?;
    for words in [&["rmi", &above.tag][..], &["rmi", "--force", &above.tag]] {
        root(words)?.expect(2, &["in use by container web"])?;
    }
    root(&["stop", "-t", "0", "web"])?.expect(0, &[])?;
    root(&["pull", &below.tag])?.expect(0, &[])?;
    // One that cannot go does not keep the other.
    let refused = root(&["rmi", &above.tag, &below.tag, "no/such:image"])?;
    refused.expect(
        2,
        &[
            "the container web",
            "xebec rm web",
            "--force",
            "no/such:image",
            "removed",
        ],
    )?;
    root(&["start", "web"])?.expect(0, &[])?;
    root(&["stop", "-t", "0", "web"])?.expect(0, &[])?;
    root(&["rmi", "--force", &above.tag])?.expect(0, &["removed"])?;
    root(&["start", "web"])?.expect(0, &[])?;
    root(&["rm", "-f", "web"])?.expect(0, &[])?;
    Ok(Outcome::Passed(
        "a shared layer, a running and a stopped container".to_owned(),
    ))
}

/// No registry is asked for a name that is mistyped; and images go by the first digits that `images` prints.
fn unknown_names(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1")?;
    let root = |words: &[&str]| lab.xebec("root", words);
    root(&["inspect", "wbe"])?.expect(
        3,
        &["no container", "\"wbe\"", "xebec ps -a", "docker.io/library/wbe"],
    )?;
    run_detached(&lab, &names, "web", &[], "true")?;
    root(&["wait", "web"])?.expect(0, &[])?;
    let listed = root(&["images", "--json"])?;
    let listed: Value = serde_json::from_str(&listed.out)?;
    let manifest = listed[0]["manifest_digest"].as_str().unwrap_or_default();
    let digits = manifest.get(7..19).context("no manifest is listed")?;
    root(&["inspect", digits])?.expect(0, &[&names.tag, manifest])?;
    root(&["explain", digits])?.expect(0, &[manifest])?;
    root(&["record", "--rm", digits])?.expect(3, &["record --list"])?;
    root(&["rm", "web"])?.expect(0, &[])?;
    root(&["rmi", digits])?.expect(0, &["removed"])?;
    Ok(Outcome::Passed(
        "a mistyped name, and an image by its first digits".to_owned(),
    ))
}

/// A `run -d` that is interrupted while it looks for its image leaves nothing.
fn given_up(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab, b"1")?;
    lab.xebec("root", &["daemon", "metrics"])?;
    lab.registry
        .inject(When::manifest(), Fault::Delay(Duration::from_secs(30)));
    let mut child = lab.spawn(
        "root",
        &["run", "-d", "--name", "web", &names.tag, "/bin/busybox", "true"],
    )?;
    wait_until(SOON, "a container that is prepared", || {
        Ok(lab.path("root-run/containers/web.json").exists())
    })?;
    let starting = lab.xebec("root", &["ps", "-a"])?;
    starting.expect(0, &["web", "Created"])?;
    kill_process(Pid::from_child(&child), Signal::INT)?;
    let ended = child.wait()?;
    ensure!(ended.code() == Some(130) && ended.signal().is_none(), "{ended}");
    let left: Vec<_> = fs::read_dir(lab.path("root/containers"))?.flatten().collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(Outcome::Passed("exit code 130".to_owned()))
}
