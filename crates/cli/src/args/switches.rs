//! Flags with a value, as docker takes them: `--rm=true` is `--rm`, and `--rm=false` is as if it were not there.
//!
//! Help, man pages and completion show flags without one.

use clap::{Arg, ArgAction, Command};

/// Lets the flags of a command, and of those below it, have a value behind `=`.
pub(super) fn take_values(command: Command) -> Command {
    command.mut_args(take_value).mut_subcommands(take_values)
}

/// Lets a flag have a value behind `=`; another option as it is.
pub(super) fn take_value(option: Arg) -> Arg {
    match is_flag(&option) {
        true => option.num_args(0..=1).require_equals(true),
        false => option,
    }
}

/// The same commands with flags that have no value.
pub(super) fn without_values(command: Command) -> Command {
    let plain = |option: Arg| match is_flag(&option) {
        true => option.num_args(0).require_equals(false),
        false => option,
    };
    command.mut_args(plain).mut_subcommands(without_values)
}

fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}
