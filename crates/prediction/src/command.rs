//! Command lines of services, from one version of an image to the next.

/// What an image runs by itself, as its configuration says.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnCommand<'a> {
    /// The beginning of the command line.
    pub entrypoint: &'a [String],
    /// The rest of it, which a user's words replace.
    pub command: &'a [String],
}

impl OwnCommand<'_> {
    /// The command line of a container for which the user gives no words.
    pub fn words(&self) -> Vec<String> {
        [self.entrypoint, self.command].concat()
    }
}

/// The command line by which the new version runs the service that the earlier one ran by `argv`; `None` if it cannot be known.
///
/// The image's own command becomes the new image's own command. Words that a user gave stay as they are. They stand behind the
/// entrypoint, unless the user replaced that, too. Where the entrypoint is another one now, and the words may stand behind either, nothing
/// is said.
pub fn carried(argv: &[String], old: &OwnCommand<'_>, new: &OwnCommand<'_>) -> Option<Vec<String>> {
    if argv.is_empty() {
        return None;
    }
    if argv == old.words() {
        return Some(new.words()).filter(|words| !words.is_empty());
    }
    let is_replaced = !argv.starts_with(old.entrypoint);
    (old.entrypoint == new.entrypoint || is_replaced).then(|| argv.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// `argv`, and the entrypoints and commands of both versions.
    fn line(argv: &str, old: [&str; 2], new: [&str; 2]) -> Option<String> {
        let [old, new] = [old, new].map(|both| both.map(words));
        let own = |[entrypoint, command]: &[Vec<String>; 2]| OwnCommand {
            entrypoint: entrypoint.clone().leak(),
            command: command.clone().leak(),
        };
        carried(&words(argv), &own(&old), &own(&new)).map(|words| words.join(" "))
    }

    #[test]
    fn the_own_command_becomes_the_new_own_command() {
        assert_eq!(
            line("web -p 1", ["web", "-p 1"], ["web", "-p 2"]).unwrap(),
            "web -p 2"
        );
        assert_eq!(line("web", ["", "web"], ["init", "web"]).unwrap(), "init web");
        assert_eq!(line("web", ["web", ""], ["web", ""]).unwrap(), "web");
        assert_eq!(
            line("web", ["web", ""], ["", ""]),
            None,
            "it runs nothing by itself"
        );
    }

    #[test]
    fn words_of_a_user_stay_and_doubtful_ones_are_left_out() {
        let same = ["web", "-p 1"];
        assert_eq!(line("web worker", same, ["web", "-p 2"]).unwrap(), "web worker");
        assert_eq!(line("sh -c x", same, ["init", "-p 2"]).unwrap(), "sh -c x");
        assert_eq!(
            line("web worker", same, ["init", "-p 1"]),
            None,
            "behind which entrypoint?"
        );
        assert_eq!(
            line("sh", ["", "web"], ["init", "web"]),
            None,
            "behind which entrypoint?"
        );
        assert_eq!(line("sh", ["", "web"], ["", "other"]).unwrap(), "sh");
        assert_eq!(line("", ["", ""], ["", "other"]), None);
    }
}
