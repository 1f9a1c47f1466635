//! `xebec run`, and the supervisor of a detached container: this process runs it, and starts it again as its restart policy
//! says.

use std::cell::OnceCell;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{CommandFactory, FromArgMatches};
use xebec_container::{
    Again, Container, RestartPolicy, find, is_stopped, keep_failed_restart, pause_before_restart,
};
use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::{Cli, Command, Origin, RunArgs, no_variables};
use crate::container_lookup::{directories, not_found};
use crate::report::Report;
use crate::run::{Problem, Start, run_container};
use crate::{caller, detach};

/// How often a pause looks whether a user has stopped the container.
const LOOK: Duration = Duration::from_millis(50);

/// `xebec run IMAGE [CMD…]`.
pub(crate) fn run(paths: &Paths, mut args: RunArgs, report: Option<Report>) -> Result<ExitCode, Failure> {
    if args.kept.restart != RestartPolicy::No && !args.kept.detach {
        let message = "--restart needs --detach: a command that waits for its container ends with it";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if args.kept.detach && report.is_none() {
        return detach::run();
    }
    if let Some(file) = &mut args.stats {
        let absolute = std::path::absolute(&*file);
        *file = absolute.map_err(|error| Failure::host("find the current directory", error))?;
    }
    let start = Start {
        origin: Origin::of_this_command(&args)?,
        name: args.name.clone(),
        args,
        again: Again::No,
        manifest: None,
        claimed: OnceCell::new(),
    };
    match report {
        None => run_container(paths, &start, None).map_or_else(Problem::end, |code| Ok(code.into())),
        Some(report) => supervise(paths, start, report),
    }
}

/// Runs a container in the background for as long as it is to run. Returns the exit code of this process, which matters
/// only if the container was never started.
pub(crate) fn supervise(paths: &Paths, start: Start, mut report: Report) -> Result<ExitCode, Failure> {
    xebec_kernel::process::set_name("xebec-container");
    let mut outcome = run_container(paths, &start, Some(&mut report));
    let directories = directories(paths);
    let name = start.claimed.get().cloned().unwrap_or_default();
    while report.is_made() {
        let Some(pause) = pause_before_restart(&directories, &name) else {
            break;
        };
        if !pause_unless_stopped(&paths.containers().join(&name), pause) {
            break;
        }
        outcome = match saved_start(paths, &name, Again::ByPolicy) {
            Ok(again) => run_container(paths, &again, Some(&mut report)),
            Err(failure) => {
                keep_failed_restart(&directories, &name, &failure.message);
                Err(failure.into())
            }
        };
    }
    outcome.map_or_else(Problem::end, |code| match report.is_made() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(code.into()),
    })
}

/// `xebec start NAME`, in the supervisor.
pub(crate) fn start_again(paths: &Paths, name: &str, report: Report) -> Result<ExitCode, Failure> {
    let start = saved_start(paths, name, Again::ByUser)?;
    supervise(paths, start, report)
}

/// Waits. Returns false once a user has stopped the container, or removed it.
fn pause_unless_stopped(directory: &Path, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        if is_stopped(directory) || !directory.exists() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// The start of a container that exists, as it was started before.
fn saved_start(paths: &Paths, name: &str, again: Again) -> Result<Start, Failure> {
    let container = find(&directories(paths), name).map_err(not_found)?;
    let origin = origin(&container)?;
    enter_directory(&origin)?;
    let manifest = manifest_of(&container)?;
    let mut args = parse(&origin.arguments)?;
    args.container.variables.env.clone_from(&origin.env);
    // They are of the first start.
    args.stats = None;
    Ok(Start {
        args,
        origin,
        again,
        manifest,
        name: Some(container.name),
        claimed: OnceCell::new(),
    })
}

/// Enters the directory where the command was called that made the container. Relative paths are meant from there, and would lead
/// anywhere from another directory.
fn enter_directory(origin: &Origin) -> Result<(), Failure> {
    let Err(error) = std::env::set_current_dir(&origin.directory) else {
        return Ok(());
    };
    // What follows the image is the container's.
    let command = parse(&origin.arguments)?.service.command.len();
    let own = origin.arguments.len().saturating_sub(command);
    let mut own = origin.arguments.iter().take(own);
    if !own.any(|argument| may_be_relative(argument)) {
        return Ok(());
    }
    let doing = format!(
        "enter {}, where `xebec run` was called",
        origin.directory.display()
    );
    Err(Failure::host(doing, error))
}

/// Whether an argument may have a path of the host that is relative: those of `--volume` and `--mount` begin with a dot. Short
/// options may stand in one word, as `-itv./here:/there`.
fn may_be_relative(argument: &str) -> bool {
    let is_short = argument.starts_with('-') && !argument.starts_with("--");
    argument.starts_with('.') || (is_short && argument.contains("v.")) || argument.contains("=.")
}

/// What is kept of a container to start it again.
fn origin(container: &Container) -> Result<Origin, Failure> {
    let name = &container.name;
    let host = |why: &dyn std::fmt::Display| Failure::host(format!("start the container {name} again"), why);
    match (&container.saved, &container.trouble) {
        (Some(saved), _) => serde_json::from_value(saved.caller.clone()).map_err(|error| host(&error)),
        (None, Some(trouble)) => Err(host(trouble)),
        (None, None) => Err(host(&format_args!(
            "an earlier version of Xebec made it, and did not note how; `xebec rm {name}` removes it"
        ))),
    }
}

/// The manifest of a container's image, once it has run.
fn manifest_of(container: &Container) -> Result<Option<Digest>, Failure> {
    let saved = container.saved.as_ref();
    let manifest = saved.and_then(|saved| saved.manifest.as_deref());
    let manifest = manifest.map(str::parse).transpose();
    manifest.map_err(|error| {
        Failure::host(
            format!("find the image of the container {}", container.name),
            error,
        )
    })
}

/// The arguments of a `run`, without reading again what its variables came from.
fn parse(arguments: &[String]) -> Result<RunArgs, Failure> {
    let command = Cli::command().mut_subcommand("run", |run| {
        run.mut_arg("env_file", |argument| argument.value_parser(no_variables))
    });
    let all = std::iter::once("xebec").chain(arguments.iter().map(String::as_str));
    let cli = command
        .try_get_matches_from(all)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    match cli.map(|cli| cli.command) {
        Ok(Command::Run(mut args)) => {
            args.container.variables.env_file.clear();
            Ok(*args)
        }
        Ok(_) => Err(Failure::host(
            "start a container again",
            "what is kept of it is no `xebec run`",
        )),
        Err(error) => Err(Failure::host("start a container again as it was started", error)),
    }
}

impl Origin {
    /// What the container of this command is started again with.
    pub(crate) fn of_this_command(args: &RunArgs) -> Result<Self, Failure> {
        let mut given = std::env::args_os().skip(1).peekable();
        given.next_if(|argument| argument == "--supervisor");
        let mut arguments = Vec::new();
        for argument in given {
            let text = argument.to_string_lossy();
            if !args.rm && text.as_bytes() != argument.as_encoded_bytes() {
                let message = format!(
                    "{text:?} is not UTF-8, so that it cannot be kept to start the container again; use --rm"
                );
                return Err(Failure::new(FailureKind::Usage, message));
            }
            arguments.push(text.into_owned());
        }
        let variables = args.container.variables.all().into_iter();
        Ok(Self {
            arguments,
            env: variables.map(|(name, value)| format!("{name}={value}")).collect(),
            directory: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            docker_config: caller::image_request(&args.service.image).docker_config,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_started_again_without_its_files_of_variables() {
        let words = [
            "--root",
            "/r",
            "run",
            "-d",
            "--env-file",
            "/no/such/file",
            "--name",
            "web",
            "image:1",
            "--env-file",
            "x",
        ];
        let args = parse(&words.map(str::to_owned)).unwrap();
        assert_eq!(args.name.as_deref(), Some("web"));
        assert_eq!(args.service.command, ["--env-file", "x"]);
        assert!(args.kept.detach && args.container.variables.env_file.is_empty());
        assert!(parse(&["ps".to_owned()]).is_err());
    }

    #[test]
    fn a_directory_that_is_gone_is_missed_only_by_who_has_a_relative_path() {
        let origin = |words: &[&str]| Origin {
            arguments: [&["run", "-d"], words]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            env: Vec::new(),
            directory: "/nonexistent/project".into(),
            docker_config: None,
        };
        for words in [
            &["-v", "./site:/site", "image:1"][..],
            &["-v./site:/site", "image:1"],
            &["-itv./site:/site", "image:1"],
            &["--volume=../site:/site", "image:1"],
            &["--mount", "type=bind,source=./site,target=/site", "image:1"],
        ] {
            let failure = enter_directory(&origin(words)).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Host);
            assert!(
                failure.message.contains("enter /nonexistent/project"),
                "{failure}"
            );
        }
        for words in [
            &["image:1"][..],
            &["-v", "/srv:/srv", "image:1"],
            &["image:1", "./server", "--config=./file"],
        ] {
            assert_eq!(enter_directory(&origin(words)), Ok(()), "{words:?}");
        }
    }
}
