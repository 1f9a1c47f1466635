//! The origin of a container, from which it is started again: the command that made it, and its surroundings.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches};
use serde::{Deserialize, Serialize};
use xebec_container::Container;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_volume::{Mount, Volume};

use crate::args::{Cli, Command, RunArgs, no_variables};
use crate::caller;

/// The command that made a container, with its surroundings. The container is started again from it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The arguments of the command that made it.
    pub(crate) arguments: Vec<String>,
    /// All its variables, as NAME=VALUE, those of files and of the caller included.
    pub(crate) env: Vec<String>,
    /// Where the command was called.
    pub(crate) directory: PathBuf,
    /// The file with the caller's logins at registries.
    pub(crate) docker_config: Option<PathBuf>,
}

impl Origin {
    /// The origin of the container that this command makes.
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

    /// The origin of a container, from its record.
    pub(crate) fn of(container: &Container) -> Result<Self, Failure> {
        let name = &container.name;
        let host =
            |why: &dyn std::fmt::Display| Failure::host(format!("start the container {name} again"), why);
        match (&container.saved, &container.trouble) {
            (Some(saved), _) => serde_json::from_value(saved.caller.clone()).map_err(|error| host(&error)),
            (None, Some(trouble)) => Err(host(trouble)),
            (None, None) => Err(host(&format_args!(
                "an earlier version of Xebec made it, and did not note how; `xebec rm {name}` removes it"
            ))),
        }
    }

    /// The arguments of the `run` that made it, with the variables that they named then.
    pub(crate) fn args(&self) -> Result<RunArgs, Failure> {
        let mut args = parse(&self.arguments, &self.directory)?;
        args.container.variables.env.clone_from(&self.env);
        Ok(args)
    }

    /// Enters the directory where the command was called that made the container. Relative paths are meant from there, and would lead
    /// anywhere from another directory.
    ///
    /// # Errors
    /// If it is gone, and an argument may be such a path.
    pub(crate) fn enter_directory(&self) -> Result<(), Failure> {
        let Err(error) = std::env::set_current_dir(&self.directory) else {
            return Ok(());
        };
        // The words after the image belong to the container.
        let command = parse(&self.arguments, &self.directory)?.service.command.len();
        let own = self.arguments.len().saturating_sub(command);
        let mut own = self.arguments.iter().take(own);
        if !own.any(|argument| may_be_relative(argument)) {
            return Ok(());
        }
        let doing = format!("enter {}, where `xebec run` was called", self.directory.display());
        Err(Failure::host(doing, error))
    }
}

/// Whether an argument may have a path of the host that is relative: those of `--volume` and `--mount` begin with a dot. Short
/// options may stand in one word, as `-itv./here:/there`.
fn may_be_relative(argument: &str) -> bool {
    let is_short = argument.starts_with('-') && !argument.starts_with("--");
    argument.starts_with('.') || (is_short && argument.contains("v.")) || argument.contains("=.")
}

/// The arguments of a `run` that was called in `directory`, without reading the files of its variables again.
fn parse(arguments: &[String], directory: &Path) -> Result<RunArgs, Failure> {
    let (for_volumes, for_mounts) = (directory.to_owned(), directory.to_owned());
    let command = Cli::command().mut_subcommand("run", |run| {
        run.mut_arg("env_file", |argument| argument.value_parser(no_variables))
            .mut_arg("volumes", |argument| {
                argument.value_parser(move |text: &str| Volume::read(text, &for_volumes))
            })
            .mut_arg("mounts", |argument| {
                argument.value_parser(move |text: &str| Mount::read(text, &for_mounts))
            })
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
            "its record is no `xebec run`",
        )),
        Err(error) => Err(Failure::host("start a container again as it was started", error)),
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
        let args = parse(&words.map(str::to_owned), Path::new("/")).unwrap();
        assert_eq!(args.name.as_deref(), Some("web"));
        assert_eq!(args.service.command, ["--env-file", "x"]);
        assert!(args.kept.detach && args.container.variables.env_file.is_empty());
        assert!(parse(&["ps".to_owned()], Path::new("/")).is_err());
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
            let failure = origin(words).enter_directory().unwrap_err();
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
            assert_eq!(origin(words).enter_directory(), Ok(()), "{words:?}");
        }
    }
}
