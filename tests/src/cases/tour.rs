//! The tour for new users, `docs/tour.md`: every command in it is run as it stands there, and prints what is shown there.
//!
//! In the document, a block of the language `console` has commands, which follow `$ `, and what they print. In that, `…` stands for
//! anything, and a line of it for any lines; alone it stands for some. A command without lines below it may print anything. Every
//! command must succeed.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::networks;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// The document.
const TOUR: &str = include_str!("../../../docs/tour.md");
/// The registry that the document speaks of. It has no TLS here.
const REGISTRY: &str = "registry.example.com";
/// The images in it, and which of the built ones they are.
const IMAGES: &[(&str, &str)] = &[("web", "nginx"), ("tools", "debian")];
/// Longest that one command may take, in seconds.
const LIMIT: u32 = 120;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "tour/as-it-stands".to_owned(),
        limit: Duration::from_secs(600),
        run: Box::new(as_it_stands),
    }]
}

/// A command of the document, and the lines that it prints.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The commands of all blocks, in order.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_inside = false;
    for line in document.lines() {
        match line.trim_end() {
            "```console" => is_inside = true,
            "```" => is_inside = false,
            line if is_inside => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step {
                    command: command.to_owned(),
                    shown: Vec::new(),
                }),
                (None, Some(step)) => step.shown.push(line.to_owned()),
                (None, None) => {}
            },
            _ => {}
        }
    }
    steps
}

/// Whether a line is as it is shown.
fn line_matches(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether what a command printed is as it is shown.
fn is_as_shown(shown: &[String], lines: &[&str]) -> bool {
    let has_anything = lines.iter().any(|line| !line.trim().is_empty());
    shown.is_empty() || (has_anything && lines_match(shown, lines))
}

/// Whether lines are as they are shown.
fn lines_match(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((any, shown)) if any.trim() == "…" => {
            (0..=lines.len()).any(|skipped| lines_match(shown, lines.get(skipped..).unwrap_or_default()))
        }
        Some((first, shown)) => lines
            .split_first()
            .is_some_and(|(line, lines)| line_matches(first, line.trim_end()) && lines_match(shown, lines)),
    }
}

fn as_it_stands(world: &World) -> Result<Outcome> {
    ensure!(
        line_matches("a…c…", "abcd") && !line_matches("a…c", "abcd") && line_matches("a", "a"),
        "the comparison is wrong"
    );
    let any = ["…".to_owned()];
    ensure!(
        is_as_shown(&[], &[]) && is_as_shown(&any, &["a"]) && !is_as_shown(&any, &[]),
        "the comparison of nothing is wrong"
    );
    if let Some(skipped) = networks::missing() {
        return Ok(skipped);
    }
    serve(world)?;
    for (name, image) in IMAGES {
        let pushed = world.push(&World::built_image(image)?, name)?;
        let tagged = pushed.replace(":latest", ":1");
        run(Command::new("skopeo")
            .args([
                "copy",
                "--quiet",
                "--src-tls-verify=false",
                "--dest-tls-verify=false",
            ])
            .args([format!("docker://{pushed}"), format!("docker://{tagged}")]))?;
    }
    let steps = steps(TOUR);
    ensure!(steps.len() > 10, "the tour has only {} commands", steps.len());
    let programs = world.path("programs");
    fs::create_dir_all(&programs)?;
    std::os::unix::fs::symlink(world.binary(), programs.join("xebec"))?;
    for step in &steps {
        take(world, &programs, step)?;
    }
    Ok(Outcome::Passed(format!("{} commands of the tour", steps.len())))
}

/// Takes one step.
fn take(world: &World, programs: &Path, step: &Step) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["-k", "5", &LIMIT.to_string(), "bash", "-c", &step.command])
        .current_dir(&world.directory)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", world.path("home"))
        .env("XEBEC_ROOT", world.path("root"))
        .env("XEBEC_RUN", world.path("root-run"))
        .stdin(Stdio::null())
        .output()
        .context("cannot start bash")?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.success(),
        "`{}` ended with {}:\n{out}{err}",
        step.command,
        output.status
    );
    let lines: Vec<&str> = out.lines().collect();
    ensure!(
        is_as_shown(&step.shown, &lines),
        "`{}` printed\n{out}{err}\ninstead of\n{}",
        step.command,
        step.shown.join("\n")
    );
    Ok(())
}

/// Lets the registry of this case answer by the name that the document has for it. The case has a mount namespace and a network
/// namespace of its own.
fn serve(world: &World) -> Result<()> {
    let hosts = world.path("hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost {REGISTRY}\n"))?;
    run(Command::new("mount")
        .args(["--bind"])
        .args([&*hosts, Path::new("/etc/hosts")]))?;
    fs::create_dir_all(world.path("root"))?;
    fs::create_dir_all(world.path("home"))?;
    fs::write(
        world.path("root/registries.toml"),
        format!("plain_http = [\"{REGISTRY}\"]\n"),
    )?;
    let listener = TcpListener::bind("127.0.0.1:80").context("port 80 of the case's network is taken")?;
    let registry = world.registry.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Ok(server) = TcpStream::connect(&registry) {
                pass(&client, &server);
                pass(&server, &client);
            }
        }
    });
    Ok(())
}

/// Passes on what one sends to the other, until it ends.
fn pass(from: &TcpStream, to: &TcpStream) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else {
        return;
    };
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}
