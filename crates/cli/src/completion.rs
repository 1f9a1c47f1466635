//! Completion scripts: clap's, and with them the names of images and containers, which `xebec complete` prints when a shell asks.
//! That command reads the records of both, starts no daemon, makes nothing, and prints nothing when it cannot read them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, ValueEnum};
use clap_complete::Shell;
use xebec_images::record::Records;

use crate::args::{Cli, CompleteArgs, NameKind};

/// The usual beginnings of an image's name, which can be left out.
const USUAL: [&str; 2] = ["docker.io/library/", "docker.io/"];

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> String {
    // clap panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(&Cli::documented()), "xebec", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let places = places();
    match shell {
        Shell::Bash => script + &bash(&places),
        Shell::Fish => script + &fish(&places),
        Shell::Zsh => zsh(&script, &places),
        _ => script,
    }
}

/// A command without the options and commands that help hides: clap's scripts would offer them.
fn shown(command: &Command) -> Command {
    // clap wants names that live for ever. This process prints a script, and ends.
    let forever = |text: &str| -> &'static str { text.to_owned().leak() };
    let mut copy = Command::new(forever(command.get_name()));
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if command.get_version().is_some() {
        copy = copy.version(env!("CARGO_PKG_VERSION")).propagate_version(true);
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let commands = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    copy.visible_aliases(command.get_visible_aliases().map(forever))
        .args(arguments.cloned())
        .subcommands(commands.map(shown))
}

/// A command whose first argument is a name.
struct Place {
    /// The words of the command, such as `cache pin`.
    path: Vec<String>,
    /// clap's name of the argument.
    id: String,
    /// The kinds of names that it takes, as `xebec complete` takes them; empty if it takes no names.
    kinds: String,
    /// Whether all further arguments are such names, too.
    is_list: bool,
    /// Whether the command has no other arguments.
    is_alone: bool,
    /// The options that take the next word.
    valued: Vec<String>,
    /// The options whose value is a name.
    named: Vec<NamedOption>,
}

/// An option whose value is a name.
struct NamedOption {
    /// Its spellings.
    names: Vec<String>,
    /// The kind of the name, as `xebec complete` takes it.
    kind: &'static str,
    /// Whether a path may stand there, too.
    or_files: bool,
}

/// All commands that have arguments.
fn places() -> Vec<Place> {
    let mut command = shown(&Cli::documented());
    command.build();
    let mut places = Vec::new();
    collect(&command, &mut Vec::new(), &mut places);
    places
}

fn collect(command: &Command, path: &mut Vec<String>, places: &mut Vec<Place>) {
    let shown = command.get_subcommands();
    for command in shown.filter(|command| command.get_name() != "help" && !command.is_hide_set()) {
        path.push(command.get_name().to_owned());
        if let Some(first) = command.get_positionals().next() {
            places.push(Place {
                path: path.clone(),
                id: first.get_id().to_string(),
                kinds: kinds(first),
                is_list: !first.is_trailing_var_arg_set()
                    && first.get_num_args().is_some_and(|number| number.max_values() > 1),
                is_alone: command.get_positionals().count() == 1,
                valued: valued(command),
                named: named(command),
            });
        }
        collect(command, path, places);
        path.pop();
    }
}

/// By the name of the argument's value: IMAGE, CONTAINER, NETWORK, VOLUME, or several with bars.
fn kinds(argument: &Arg) -> String {
    let name = argument.get_value_names().and_then(|names| names.first());
    let words = name.map_or("", |name| name.as_str()).split('|');
    let kinds: Vec<&str> = words
        .filter_map(|word| match word {
            "IMAGE" => Some("images"),
            "CONTAINER" => Some("containers"),
            "NETWORK" => Some("networks"),
            "VOLUME" => Some("volumes"),
            _ => None,
        })
        .collect();
    kinds.join(" ")
}

fn valued(command: &Command) -> Vec<String> {
    let options = command.get_arguments().filter(|argument| {
        !argument.is_positional() && argument.get_action().takes_values() && !argument.is_require_equals_set()
    });
    options.flat_map(spellings).collect()
}

/// As `--long` and `-s`.
fn spellings(option: &Arg) -> Vec<String> {
    let long = option.get_long_and_visible_aliases().unwrap_or_default();
    let short = option.get_short().map(|short| format!("-{short}"));
    long.into_iter()
        .map(|long| format!("--{long}"))
        .chain(short)
        .collect()
}

/// By the name of the option's value.
fn named(command: &Command) -> Vec<NamedOption> {
    let options = command
        .get_arguments()
        .filter(|argument| !argument.is_positional());
    let options = options.filter_map(|option| {
        let value = option.get_value_names().and_then(|names| names.first());
        let (kind, or_files) = match value?.as_str() {
            "NETWORK" => ("reachable", false),
            value if value.starts_with("SRC:DST") => ("volumes", true),
            _ => return None,
        };
        Some(NamedOption {
            names: spellings(option),
            kind,
            or_files,
        })
    });
    options.collect()
}

/// bash breaks words at colons, and hands over the part that follows; names are compared as a whole here.
fn bash(places: &[Place]) -> String {
    let cases = places
        .iter()
        .filter(|place| !place.kinds.is_empty())
        .map(|place| {
            let named = place.named.iter().flat_map(|option| {
                let files = if option.or_files { ",files" } else { "" };
                let of = move |name| format!("{name}={}{files} ", option.kind);
                option.names.iter().map(of)
            });
            format!(
                "            \"{}\") kinds=\"{}\" many={} valued=\" {} \" named=\" {}\" ;;\n",
                place.path.join(" "),
                place.kinds,
                if place.is_list { "1" } else { "" },
                place.valued.join(" "),
                named.collect::<String>()
            )
        });
    include_str!("completion/names.bash").replace("            # CASES\n", &cases.collect::<String>())
}

fn fish(places: &[Place]) -> String {
    let mut lines = include_str!("completion/names.fish").to_owned();
    for place in places {
        let within: Vec<String> = place
            .path
            .iter()
            .enumerate()
            .map(|(depth, word)| match depth {
                0 => format!("__fish_xebec_using_subcommand {word}"),
                _ => format!("__fish_seen_subcommand_from {word}"),
            })
            .collect();
        let within = within.join("; and ");
        let mut push = |options: &str, kinds: &str| {
            let _ = writeln!(
                lines,
                "complete -c xebec -n \"{within}\" {options}-a \"(xebec (__fish_xebec_directories) complete {kinds} -- (commandline -ct) 2>/dev/null)\""
            );
        };
        if !place.kinds.is_empty() {
            push(if place.is_alone { "-f " } else { "" }, &place.kinds);
        }
        for option in &place.named {
            let names = option.names.iter().map(|name| match name.strip_prefix("--") {
                Some(long) => format!("-l {long} "),
                None => format!("-s {} ", name.trim_start_matches('-')),
            });
            let rest = if option.or_files { "-r " } else { "-x " };
            push(&(names.collect::<String>() + rest), option.kind);
        }
    }
    lines
}

/// The arguments of clap's script get an action. It has them by clap's names, whose meaning must be the same everywhere. The blank
/// before an action keeps `_arguments` from adding words of its own to it.
fn zsh(script: &str, places: &[Place]) -> String {
    let mut lines: Vec<String> = script.lines().map(str::to_owned).collect();
    let ids: BTreeSet<&str> = places.iter().map(|place| place.id.as_str()).collect();
    for id in ids {
        let kinds: BTreeSet<&str> = places
            .iter()
            .filter(|place| place.id == id)
            .map(|place| place.kinds.as_str())
            .collect();
        let kinds: Vec<&str> = kinds.into_iter().collect();
        let [kinds] = kinds.as_slice() else { continue };
        if kinds.is_empty() {
            continue;
        }
        let name = format!("{id} -- ");
        for line in &mut lines {
            let argument = line.trim_start_matches(['\'', '*', ':']);
            if argument.len() != line.len() && argument.starts_with(&name) {
                *line = line.replace(":_default'", &format!(": _xebec_names {kinds}'"));
            }
        }
    }
    for option in places.iter().flat_map(|place| &place.named) {
        let files = if option.or_files { "files " } else { "" };
        for name in &option.names {
            // `--long=[help]:VALUE:action`, and `-s+[help]:VALUE:action`; with a star if it can be repeated.
            let begins = format!("{name}{}[", if name.starts_with("--") { "=" } else { "+" });
            for line in &mut lines {
                if line.trim_start_matches(['\'', '*']).starts_with(&begins) {
                    *line = line.replace(":_default'", &format!(": _xebec_names {files}{}'", option.kind));
                }
            }
        }
    }
    let end = lines
        .iter()
        .rposition(|line| line.starts_with("if [ \"$funcstack"));
    lines.insert(
        end.unwrap_or(lines.len()),
        include_str!("completion/names.zsh").to_owned(),
    );
    lines.join("\n") + "\n"
}

/// `xebec complete`: prints the names that begin as the word does that is being completed.
pub(crate) fn complete(root: &Path, run: &Path, args: &CompleteArgs) {
    let word = args.word.as_deref().unwrap_or_default();
    let mut names = BTreeSet::new();
    for kind in &args.kinds {
        match kind {
            NameKind::Images => names.extend(images(root, word)),
            NameKind::Containers => names.extend(containers(root, run)),
            NameKind::Networks => names.extend(networks(root)),
            NameKind::Reachable => {
                names.extend(networks(root));
                names.extend(["bridge", "host", "none"].map(str::to_owned));
            }
            NameKind::Volumes => names.extend(volumes(root)),
        }
    }
    let fitting = names.iter().filter(|name| name.starts_with(word));
    fitting.for_each(|name| outln!("{name}"));
}

/// Each by its usual name, unless the word begins as its full one; one without a name by its digest.
fn images(root: &Path, word: &str) -> Vec<String> {
    let records = Records::new(root.join("images")).list().into_iter();
    let names = records.flat_map(|record| match record.references.is_empty() {
        true => vec![record.manifest_digest.short()],
        false => record.references.into_iter().collect(),
    });
    let usual = names.map(|name| {
        let short = USUAL.iter().find_map(|prefix| name.strip_prefix(prefix));
        match short {
            Some(short) if short.starts_with(word) => short.to_owned(),
            _ => name,
        }
    });
    usual.collect()
}

/// Those that run, and those whose files are kept.
fn containers(root: &Path, run: &Path) -> Vec<String> {
    let running = xebec_container::list(run).map(|listed| listed.records);
    let running = running.into_iter().flatten().map(|record| record.id);
    running.chain(directories(&root.join("containers"))).collect()
}

fn volumes(root: &Path) -> Vec<String> {
    let names = directories(&root.join("volumes"));
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Those that were made; `bridge`, `host` and `none` cannot be removed, nor shown.
fn networks(root: &Path) -> Vec<String> {
    let names = entries(&root.join("networks")).filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter_map(|name| name.strip_suffix(".conflist").map(str::to_owned));
    names.collect()
}

fn directories(of: &Path) -> impl Iterator<Item = String> + use<> {
    let directories = entries(of).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.filter_map(|entry| entry.file_name().into_string().ok())
}

fn entries(of: &Path) -> impl Iterator<Item = std::fs::DirEntry> + use<> {
    std::fs::read_dir(of).into_iter().flatten().flatten()
}

impl ValueEnum for NameKind {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Images,
            Self::Containers,
            Self::Networks,
            Self::Reachable,
            Self::Volumes,
        ]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(match self {
            Self::Images => "images".into(),
            Self::Containers => "containers".into(),
            Self::Networks => "networks".into(),
            Self::Reachable => "reachable".into(),
            Self::Volumes => "volumes".into(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn names_of_volumes_and_networks_are_those_that_were_made() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["volumes/data", "volumes/.new-x", "networks"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        std::fs::write(root.path().join("networks/back.conflist"), b"{}").unwrap();
        std::fs::write(root.path().join("networks/lock"), b"").unwrap();
        assert_eq!(volumes(root.path()), ["data"]);
        assert_eq!(networks(root.path()), ["back"]);
        assert!(volumes(&root.path().join("nothing")).is_empty());
    }

    #[test]
    fn what_is_hidden_is_not_offered() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            let offers = |option: &str| {
                let forms = [format!("--{option}"), format!("-l {option} ")];
                forms.iter().any(|form| script.contains(form))
            };
            for hidden in ["supervisor", "privileged", "cpu-quota"] {
                assert!(!offers(hidden), "{shell}: {hidden}");
            }
            for hidden in [
                "journal-version",
                "'complete:",
                "'worker:",
                "-a \"complete\"",
                "-a \"worker\"",
                " complete man",
            ] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
            assert!(
                offers("cap-add") && offers("version") && offers("restart"),
                "{shell}"
            );
        }
    }

    #[test]
    fn the_scripts_ask_for_names_where_they_belong() {
        let bash = script(Shell::Bash);
        for line in [
            "\"rmi\") kinds=\"images\" many=1 ",
            "\"run\") kinds=\"images\" many= ",
            "\"stop\") kinds=\"containers\" many=1 ",
            "\"exec\") kinds=\"containers\" many= ",
            "\"cache pin\") kinds=\"images\" many= ",
            "\"explain\") kinds=\"containers images\" many= ",
            "\"inspect\") kinds=\"containers images\" many=1 ",
            "\"volume rm\") kinds=\"volumes\" many=1 ",
            "\"network rm\") kinds=\"networks\" many=1 ",
        ] {
            assert!(bash.contains(line), "{line}");
        }
        assert!(!bash.contains("\"umount\") kinds"));
        let fish = script(Shell::Fish);
        for line in [
            "\"__fish_xebec_using_subcommand rmi\" -f -a \"(xebec (__fish_xebec_directories) complete images -- ",
            "\"__fish_xebec_using_subcommand cache; and __fish_seen_subcommand_from pin\" -f -a ",
            "\"__fish_xebec_using_subcommand run\" -a \"(xebec (__fish_xebec_directories) complete images -- ",
            "\"__fish_xebec_using_subcommand run\" -l network -l net -x -a \"(xebec (__fish_xebec_directories) complete reachable -- ",
            "\"__fish_xebec_using_subcommand run\" -l volume -s v -r -a \"(xebec (__fish_xebec_directories) complete volumes -- ",
        ] {
            assert!(fish.contains(line), "{line}");
        }
        let zsh = script(Shell::Zsh);
        for option in ["'--network=[", "'*--volume=[", "'*-v+["] {
            let line = zsh.lines().find(|line| line.starts_with(option)).unwrap();
            assert!(line.contains(": _xebec_names "), "{line}");
        }
        assert!(zsh.contains(": _xebec_names images'"));
        assert!(zsh.contains(": _xebec_names containers images'"));
        assert!(zsh.contains("\n_xebec_names() {"));
    }
}
