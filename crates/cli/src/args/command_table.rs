//! `docs/commands.md` has every command of docker, and every command of Xebec.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory as _;

use super::Cli;
use super::foreign::{PAGE, Row, quoted, rows};

/// The commands of docker 28 by their long names, those of a cluster by their first word.
const DOCKERS: &[(&str, &str)] = &[
    (
        "container",
        "attach commit cp create diff exec export inspect kill logs ls pause port prune rename restart rm run start stats stop \
         top unpause update wait",
    ),
    (
        "image",
        "build history import inspect load ls prune pull push rm save tag",
    ),
    ("network", "connect create disconnect inspect ls prune rm"),
    ("volume", "create inspect ls prune rm update"),
    ("system", "df events info prune"),
    (
        "",
        "builder buildx checkpoint compose config context login logout manifest node plugin search secret service stack swarm \
         trust version",
    ),
];

/// The row of each command of docker.
fn table() -> BTreeMap<&'static str, Row<'static>> {
    rows(PAGE).collect()
}

/// The commands of Xebec that are shown, by all their words.
fn commands() -> BTreeSet<String> {
    fn gather(command: &clap::Command, path: &str, into: &mut BTreeSet<String>) {
        let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let mut shown = shown.filter(|inner| inner.get_name() != "help").peekable();
        if shown.peek().is_none() {
            into.insert(path.to_owned());
        }
        shown.for_each(|inner| gather(inner, &format!("{path} {}", inner.get_name()), into));
    }
    let mut command = Cli::command();
    command.build();
    let mut all = BTreeSet::new();
    gather(&command, "xebec", &mut all);
    all
}

/// The command of Xebec that a text begins with.
fn command_of<'a>(text: &str, commands: &'a BTreeSet<String>) -> Option<&'a str> {
    let begins = |command: &&String| {
        text.strip_prefix(command.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    commands.iter().find(begins).map(String::as_str)
}

#[test]
fn each_command_of_docker_is_there_with_what_is_so() {
    let commands = commands();
    let mut table = table();
    for (group, names) in DOCKERS {
        for name in names.split_whitespace() {
            let name = format!("{group} {name}").trim().to_owned();
            let Row { class, sentence } = table
                .remove(name.as_str())
                .unwrap_or_else(|| panic!("docker has {name}, and the table has it not"));
            let first = quoted(sentence).next().filter(|_| sentence.starts_with('`'));
            let is_named = first
                .is_some_and(|first| first == "xebec --version" || command_of(first, &commands).is_some());
            match class {
                "same" | "differs" => assert!(is_named, "{name}: {first:?} is no command"),
                "not there" => assert!(!sentence.is_empty(), "{name} is not there, and nobody says why"),
                class => panic!("the table says {class:?} of {name}"),
            }
        }
    }
    assert!(table.is_empty(), "docker has no {:?}", table.keys());
}

#[test]
fn each_command_of_xebec_is_there_and_no_other() {
    let commands = commands();
    let named: BTreeSet<&str> = quoted(PAGE).filter(|text| text.starts_with("xebec ")).collect();
    for command in &commands {
        let is_named = named
            .iter()
            .any(|text| command_of(text, &commands) == Some(command));
        assert!(is_named, "the page has no `{command}`");
    }
    for text in named {
        let is_known = text == "xebec --version" || command_of(text, &commands).is_some();
        assert!(is_known, "the page has `{text}`, and Xebec has not");
    }
}
