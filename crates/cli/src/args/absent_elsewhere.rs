//! Options of docker's other commands that Xebec does not have: each is known, and refused with the reason and the remedy, as those
//! of `docker run` are (`absent.rs`). `docs/commands.md` has the same in short.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, Error};

/// Options of one command, or of several.
struct Row {
    /// The words of each command.
    commands: &'static [&'static str],
    /// All the ways to write the options.
    options: &'static [&'static str],
    /// The reason, and the remedy.
    why: &'static str,
}

const fn row(commands: &'static [&'static str], options: &'static [&'static str], why: &'static str) -> Row {
    Row {
        commands,
        options,
        why,
    }
}

const FROM_JSON: &str = "choose from what --json prints";

/// The options that Xebec does not have.
const ROWS: &[Row] = &[
    row(
        &["exec"],
        &["--privileged"],
        "a command gets no more than its container has; give the container what it needs when it is made, by \
         `xebec run --cap-add` or --device",
    ),
    row(
        &["exec", "start"],
        &["--detach-keys"],
        "no keys leave a command that is joined; start the container or the command with --detach",
    ),
    row(
        &["start"],
        &["-i", "--interactive"],
        "--attach shows output and gives no input; `xebec exec -it` runs a shell in a container that runs",
    ),
    row(
        &["stop", "restart"],
        &["-s", "--signal"],
        "the signal is the one that `xebec run --stop-signal` set; `xebec kill --signal` sends another",
    ),
    row(
        &["rm"],
        &["-a", "--all"],
        "`xebec container prune` removes all that do not run, and `xebec rm --force $(xebec ps -aq)` all",
    ),
    row(&["rm"], &["-l", "--link"], "containers have no links"),
    row(
        &["ps", "inspect"],
        &["-s", "--size"],
        "`du` tells the size of what a container wrote: the directory `upper` below <root>/containers/NAME",
    ),
    row(&["logs"], &["--details"], "`xebec inspect` shows labels"),
    row(&["stats"], &["--format"], FROM_JSON),
    row(
        &["stats"],
        &["-a", "--all", "--no-trunc"],
        "containers that run are shown, with their whole names",
    ),
    row(
        &["images"],
        &[
            "-f",
            "--filter",
            "--format",
            "--digests",
            "--no-trunc",
            "-a",
            "--all",
        ],
        "--quiet prints the digests of manifests; choose from what --json prints",
    ),
    row(&["pull"], &["-a", "--all-tags"], "name each image with its tag"),
    row(
        &["rmi"],
        &["--no-prune"],
        "layers that no other image uses go with the image",
    ),
    row(
        &["login"],
        &["-p", "--password"],
        "other users of the host can see arguments; type the password, or give it by --password-stdin",
    ),
    row(
        &["network create"],
        &[
            "--label",
            "-o",
            "--opt",
            "--attachable",
            "--ipv6",
            "--ip-range",
            "--aux-address",
        ],
        "a network has its subnet and gateway, and may be --internal; docs/networks.md says how to write another definition",
    ),
    row(
        &["network ls"],
        &["-q", "--format", "-f", "--filter", "--no-trunc"],
        FROM_JSON,
    ),
    row(
        &["network rm"],
        &["-f", "--force"],
        "what is not there is an error, and what a container uses stays",
    ),
    row(
        &["volume create"],
        &["-o", "--opt"],
        "the driver has no options; mount the file system on the host, and use `xebec run --mount type=bind`",
    ),
    row(
        &["volume ls"],
        &["-f", "--filter", "--format"],
        "--unused lists those that no container uses; choose others from what --json prints",
    ),
    row(
        &["volume prune"],
        &["--filter"],
        "without --all it removes anonymous volumes only; `xebec volume rm` removes those that you name",
    ),
    row(
        &["network prune"],
        &["--filter"],
        "`xebec network rm` removes those that you name",
    ),
    row(
        &["container prune"],
        &["--filter"],
        "`xebec rm $(xebec ps -aq --filter status=exited)` removes those that a filter of `xebec ps` chooses",
    ),
];

/// The error for an option that a command does not have. If docker has the option, the error gives the reason and the remedy.
/// clap's own advice to write `--` before it is left out, since nobody who writes an option means a name that begins with a dash.
pub(super) fn told(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let path = path_of(command, words);
    let found = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => sentence(&path, option),
        _ => None,
    };
    if let Some(sentence) = found {
        return Error::raw(ErrorKind::UnknownArgument, sentence);
    }
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().starts_with("to pass "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// The message about an option that the command of these words lacks.
fn sentence(path: &str, option: &str) -> Option<String> {
    let row = ROWS
        .iter()
        .find(|row| row.commands.contains(&path) && row.options.contains(&option))?;
    Some(format!("xebec {path} has no {option}: {}\n", row.why))
}

/// The words of the command that a command line is of.
fn path_of(command: &Command, words: &[OsString]) -> String {
    let read = command.clone().ignore_errors(true).try_get_matches_from(words);
    let mut names = Vec::new();
    let mut matches: Option<&ArgMatches> = read.as_ref().ok();
    while let Some((name, inner)) = matches.and_then(ArgMatches::subcommand) {
        names.push(name);
        matches = Some(inner);
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::ROWS;
    use crate::args::Cli;

    fn said(words: &[&str]) -> String {
        let words = std::iter::once("xebec").chain(words.iter().copied());
        let words: Vec<OsString> = words.map(OsString::from).collect();
        Cli::read(&words)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn each_option_that_is_not_there_is_answered_with_what_is_so() {
        for row in ROWS {
            for (command, option) in row
                .commands
                .iter()
                .flat_map(|command| row.options.iter().map(move |option| (command, option)))
            {
                let mut words: Vec<&str> = command.split(' ').collect();
                words.push(option);
                let said = said(&words);
                let wanted = format!("xebec {command} has no {option}: {}", row.why);
                assert!(said.contains(&wanted), "{words:?}: {said}");
            }
        }
        // With a value, and with what else the command needs.
        let with_value = said(&["stats", "--format={{.Name}}", "web"]);
        assert!(with_value.contains("has no --format: "), "{with_value}");
        let password = said(&["login", "-u", "ann", "-p", "secret", "registry.example.com"]);
        assert!(
            password.contains("--password-stdin") && !password.contains("secret"),
            "{password}"
        );
    }
}
