//! The end of a command line that starts a container: `IMAGE [COMMAND]...`. All that follows the image belongs to the container,
//! also what looks like an option of Xebec.
//!
//! clap takes options wherever they stand, except after the first word of a list that is the last positional argument. So image
//! and command are one list for clap. In help, man pages and completion they are two ([`documented`]).

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::image::{ImageArgs, PLATFORM};

/// clap's name of image and command.
pub(super) const WORDS: &str = "words";

/// Which image a container is started from, and its command line.
#[derive(Debug)]
pub(crate) struct ServiceArgs {
    /// The image; with an empty name where none need be given and none was.
    pub(crate) image: ImageArgs,
    /// Command and arguments instead of the image's own.
    pub(crate) command: Vec<String>,
}

impl FromArgMatches for ServiceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut words = matches.get_many::<String>(WORDS).into_iter().flatten().cloned();
        // None only where a command can do without an image.
        let image = words.next().unwrap_or_default();
        let platform = matches.get_one::<String>("platform").cloned();
        Ok(Self {
            image: ImageArgs { image, platform },
            command: words.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ServiceArgs {
    fn augment_args(command: Command) -> Command {
        let words = Arg::new(WORDS)
            .value_name("IMAGE")
            .required(true)
            .num_args(1..)
            .trailing_var_arg(true)
            .help("The image: NAME[:TAG][@DIGEST], with or without a registry");
        let platform = Arg::new("platform")
            .long("platform")
            .value_name("OS/ARCH")
            .help(PLATFORM);
        command.arg(words).arg(platform)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The commands as help, man pages and completion show them: with image and command as two arguments.
pub(super) fn documented(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let command = documented(command);
        let has_words = command
            .get_positionals()
            .any(|argument| argument.get_id() == WORDS);
        if has_words { with_two(command) } else { command }
    })
}

fn with_two(command: Command) -> Command {
    let trailing = Arg::new("command")
        .value_name("COMMAND")
        .num_args(0..)
        .trailing_var_arg(true)
        .help("Command and arguments instead of the image's own. Options after IMAGE belong to them");
    command
        .mut_arg(WORDS, |image| image.num_args(1).trailing_var_arg(false))
        .arg(trailing)
}
