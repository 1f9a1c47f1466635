//! A command that runs a container in the foreground tells on the terminal which reader waits, also where the container has the terminal.
//! Without a terminal it tells nothing of that. It tells of a read that failed, and why, wherever it writes; `logs`, `start --attach` and
//! `exec` do so, too.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::registry::{Fault, When};
use xebec_testkit::tar::TarBuilder;

use super::support::{content, settings};
use crate::lab::{self, Lab, Names};
use crate::runner::Outcome;
use crate::world::{World, run};

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let mut layer = TarBuilder::new();
    layer.directory("bin");
    lab::put_programs(&mut layer, &["/bin/busybox"], 0o755)?;
    layer.file("late", content(0));
    // In spans of its own.
    layer.file("other", lab::contents(5, 6 << 20));
    let image = ImageBuilder::new().layer(&layer.into_bytes(), Compression::Gzip(1))?;
    let names = lab.push_indexed(&image.build(), "app")?;
    let words = |how: &[&'static str]| -> Vec<&str> {
        let begin = [&["run"][..], how].concat();
        let rest = ["--name", "web", &names.tag, "/bin/busybox", "md5sum", "/late"];
        [&begin[..], &rest].concat()
    };
    let mut shown = Vec::new();
    for (root, is_terminal, how) in [
        ("root", true, &["--rm"][..]),
        ("own", true, &["--rm", "-it"]),
        ("other", false, &["--rm"]),
    ] {
        let words = words(how);
        settings(&lab, root, "")?;
        // The settings of other cases give up an answer after two seconds.
        fs::write(lab.path(root).join("registries.toml"), "")?;
        lab.registry
            .inject(When::blob().range(true), Fault::Delay(Duration::from_secs(4)));
        let command = world.xebec_at(root, &words);
        let output = match is_terminal {
            true => on_a_terminal(&command)?,
            false => lab.xebec(root, &words)?.err,
        };
        lab.registry.clear_faults();
        shown.push(output);
    }
    let [terminal, own, pipe] = shown.as_slice() else {
        anyhow::bail!("{shown:?}");
    };
    let mut all_told = String::new();
    for shown in [terminal, own] {
        let told = shown.lines().find(|line| line.contains(" in web has waited "));
        let told = told.with_context(|| format!("no reader is named: {shown}"))?;
        ensure!(
            told.trim_start().starts_with("note: ")
                && told.contains("which is waiting for registry")
                && told.contains("`xebec explain web`"),
            "{told}"
        );
        all_told = told.trim().to_owned();
    }
    ensure!(!pipe.contains("has waited"), "{pipe:?}");
    let failed = failed_reads(&lab, &names)?;
    Ok(Outcome::Passed(format!("{all_told}\n{failed}")))
}

/// Reads that fail are told by the command that runs the container, by `logs`, `start --attach` and `exec`. Gives what one of them says.
fn failed_reads(lab: &Lab<'_>, names: &Names) -> Result<String> {
    let root = |words: &[&str]| lab.xebec("failing", words);
    let sums = |how: &str| {
        root(&[
            "run",
            how,
            "--name",
            "web",
            &names.tag,
            "/bin/busybox",
            "md5sum",
            "/late",
        ])
    };
    settings(lab, "failing", "fill_wait = \"2s\"\n")?;
    lab.registry.inject(When::blob().range(true), Fault::WrongBytes);
    let ended = sums("--rm")?;
    sums("-d")?.expect(0, &[])?;
    root(&["wait", "web"])?.expect(0, &["1"])?;
    let logs = root(&["logs", "web"])?;
    let attached = root(&["start", "--attach", "web"])?;
    lab.registry.clear_faults();
    let idle = [
        "run",
        "-d",
        "--name",
        "idle",
        &names.tag,
        "/bin/busybox",
        "sleep",
        "1d",
    ];
    root(&idle)?.expect(0, &[])?;
    // Its program has come by then.
    root(&["exec", "idle", "/bin/busybox", "true"])?.expect(0, &[])?;
    lab.registry.inject(When::blob().range(true), Fault::WrongBytes);
    let joined = root(&["exec", "idle", "/bin/busybox", "md5sum", "/other"])?;
    lab.registry.clear_faults();
    root(&["rm", "-f", "idle", "web"])?.expect(0, &[])?;
    let mut said = String::new();
    for (shown, name) in [
        (&joined, "idle"),
        (&ended, "web"),
        (&logs, "web"),
        (&attached, "web"),
    ] {
        let says = format!(": {name} could not read ");
        let line = shown.err.lines().find(|line| line.contains(&says));
        let line = line.with_context(|| format!("no failed read of {name} is named: {shown:?}"))?;
        said = line.to_owned();
    }
    ensure!(
        ended.code != 0 && joined.code != 0 && attached.code != 0,
        "{ended:?} {joined:?} {attached:?}"
    );
    Ok(said)
}

/// The output of a command on a terminal of its own, made by script(1). None of its words has a blank.
fn on_a_terminal(command: &Command) -> Result<String> {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let output = run(Command::new("script")
        .args(["-qec", &words.join(" "), "/dev/null"])
        .envs(variables)
        .stdin(Stdio::null()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
