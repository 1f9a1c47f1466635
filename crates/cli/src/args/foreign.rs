//! Commands of docker that Xebec does not have, or has under another name: each is answered with its sentence in the table of
//! `docs/commands.md`.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// The page whose tables have every command of docker.
pub(super) const PAGE: &str = include_str!("../../../../docs/commands.md");

/// Groups of docker's commands whose names are left out as a rule.
const GROUPS: [&str; 3] = ["container", "image", "system"];

/// The row of a table about one command of docker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// `same`, `differs` or `not there`.
    pub(super) class: &'a str,
    /// The reason, if it is not there; else the command of Xebec, and the difference.
    pub(super) sentence: &'a str,
}

/// The words in backquotes.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of a page's tables, by the commands that they are of.
pub(super) fn rows(page: &str) -> impl Iterator<Item = (&str, Row<'_>)> {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let &[commands, _, class, sentence] = cells.as_slice() else {
            return None;
        };
        Some(quoted(commands).map(move |name| (name, Row { class, sentence })))
    });
    rows.flatten()
}

/// The error for a word that is no command of Xebec's but one of docker's; any other error as it is.
pub(super) fn told(error: Error, command: &Command, words: &[String]) -> Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let Some(at) = words.iter().position(|word| word == unknown) else {
        return error;
    };
    let word = |at: usize| words.get(at).map(String::as_str).unwrap_or_default();
    let before = at.checked_sub(1).map(word).unwrap_or_default();
    let found = match command.find_subcommand(before) {
        // A group of docker's, or a command that docker has not.
        Some(_) => of_group(before, unknown),
        None => of_group(unknown, word(at + 1)).or_else(|| alone(unknown)),
    };
    let Some((name, row)) = found else {
        return error;
    };
    let advice = match row.class {
        "not there" => row.sentence.to_owned(),
        _ => format!("it is {}", row.sentence),
    };
    let message = format!(
        "Xebec has no `{name}`: {}\n\nEvery command of docker is in docs/commands.md, those of Xebec in `xebec --help`.\n",
        without_links(&advice)
    );
    Error::raw(ErrorKind::InvalidSubcommand, message).with_cmd(command)
}

/// The row of a command of docker.
fn row(name: &str) -> Option<Row<'static>> {
    rows(PAGE).find(|(found, _)| *found == name).map(|(_, row)| row)
}

/// The command of a group, with its name as it is typed.
fn of_group(group: &str, name: &str) -> Option<(String, Row<'static>)> {
    let whole = format!("{group} {name}");
    let row = row(&whole)?;
    Some((whole, row))
}

/// The command that a name without a group means.
fn alone(name: &str) -> Option<(String, Row<'static>)> {
    let mut of_groups = GROUPS.iter().filter_map(|group| row(&format!("{group} {name}")));
    let row = of_groups.next().or_else(|| row(name))?;
    Some((name.to_owned(), row))
}

/// A sentence of the page without the targets of its links.
fn without_links(sentence: &str) -> String {
    let mut text = String::new();
    let mut rest = sentence;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace(" ([", " (").replace('[', "")
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;

    fn said(words: &str) -> String {
        let words = std::iter::once("xebec").chain(words.split(' ')).map(Into::into);
        Cli::read(&words.collect::<Vec<_>>())
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_command_of_docker_is_answered_with_what_is_so() {
        for (words, parts) in [
            ("attach web", vec!["no `attach`", "`xebec logs -f`"]),
            (
                "container attach web",
                vec!["no `container attach`", "`xebec logs -f`"],
            ),
            (
                "container ls --all",
                vec!["no `container ls`", "it is `xebec ps`"],
            ),
            ("image ls", vec!["no `image ls`", "it is `xebec images`"]),
            (
                "history nginx",
                vec!["no `history`", "`xebec inspect --type image`"],
            ),
            ("build .", vec!["Xebec builds nothing"]),
            ("version", vec!["it is `xebec --version`"]),
            ("swarm init", vec!["Kubernetes"]),
            ("--root /r --run /u search nginx", vec!["no `search`"]),
        ] {
            let said = said(words);
            assert!(parts.iter().all(|part| said.contains(part)), "{words}: {said}");
            assert!(
                !said.contains("](") && !said.contains("similar"),
                "{words}: {said}"
            );
        }
    }

    #[test]
    fn a_word_that_is_no_command_anywhere_is_told_as_such() {
        // `ls` is a command of docker's groups, but not of a cache.
        for (words, unknown) in [
            ("imagse", "imagse"),
            ("cache ls", "ls"),
            ("daemon attach", "attach"),
        ] {
            let said = said(words);
            let wanted = format!("unrecognized subcommand '{unknown}'");
            assert!(said.contains(&wanted), "{words}: {said}");
        }
    }
}
