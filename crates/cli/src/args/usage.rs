//! Shows the use of a command to a user who made a mistake.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Command, Error};

use super::switches;

/// The reason why words cannot be read, after clap found `error` in them, with the usage of `documented`.
pub(super) fn told(error: Error, documented: &Command, words: &[OsString]) -> Error {
    let is_asked_for = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let command = match is_asked_for {
        true => documented.clone(),
        // clap takes an option that a variable sets for one that was given, and shows it as if it had to be.
        false => without_variables(documented.clone()),
    };
    let told = |command: Command| command.try_get_matches_from(words).err();
    let found = match told(command.clone()) {
        // The documented form of a flag takes no value.
        Some(error) if error.kind() == ErrorKind::TooManyValues => told(switches::take_values(command)),
        other => other,
    };
    found.unwrap_or(error)
}

fn without_variables(command: Command) -> Command {
    command
        .mut_args(|argument| argument.env(Resettable::<clap::builder::OsStr>::Reset))
        .mut_subcommands(without_variables)
}
