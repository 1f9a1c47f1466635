//! Commands of docker that Xebec has not, or has under another name: each is answered with what the table of `docs/commands.md`
//! says of it.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// The page whose tables have every command of docker.
pub(super) const PAGE: &str = include_str!("../../../../docs/commands.md");

/// Groups of docker's commands whose names are left out as a rule.
const GROUPS: [&str; 3] = ["container", "image", "system"];

/// What a table says of a command of docker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// `same`, `differs` or `not there`.
    pub(super) class: &'a str,
    /// For what is not there the reason, else the command of Xebec, and the difference.
    pub(super) sentence: &'a str,
}

/// What stands in backquotes.
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
    let Some((name, row)) = find(before, unknown, word(at + 1)) else {
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

/// The row of the command that an unknown word between two others means, with its name as it was typed.
fn find(before: &str, unknown: &str, after: &str) -> Option<(String, Row<'static>)> {
    let row = |name: &str| rows(PAGE).find(|(found, _)| *found == name).map(|(_, row)| row);
    let of_group = |group: &str, name: &str| row(&format!("{group} {name}"));
    let with_group = [(before, unknown), (unknown, after)];
    let found = with_group.iter().find_map(|(group, name)| {
        let row = of_group(group, name)?;
        Some((format!("{group} {name}"), row))
    });
    found.or_else(|| {
        let mut of_groups = GROUPS.iter().filter_map(|group| of_group(group, unknown));
        let row = of_groups.next().or_else(|| row(unknown))?;
        Some((unknown.to_owned(), row))
    })
}

/// A sentence of the page without what its links lead to.
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
        Cli::read(words)
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
            ("commit web", vec!["Xebec makes no images"]),
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
        let said = said("imagse");
        assert!(said.contains("unrecognized subcommand 'imagse'"), "{said}");
    }
}
