//! `-v` and `--verbose`. Where `-v` is an option of a command itself, as it is a volume for `run`, `-v` prints more only before that
//! command's name; `--verbose` does so everywhere.

use clap::{Arg, ArgAction, Command};

/// clap's name of the option.
const VERBOSE: &str = "verbose";

/// Gives a command with a `-v` of its own a `--verbose` without the short form. A global option is not handed on to a command that
/// has one of its name.
pub(super) fn leave_short_form(command: Command) -> Command {
    let command = command.mut_subcommands(leave_short_form);
    let has_own = command
        .get_arguments()
        .any(|argument| argument.get_short() == Some('v'));
    if !has_own {
        return command;
    }
    let verbose = Arg::new(VERBOSE)
        .long(VERBOSE)
        .action(ArgAction::Count)
        .help("Print more: once, what Xebec does; twice, how. Before the command's name, -v does so, too");
    command.arg(verbose)
}
