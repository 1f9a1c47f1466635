//! Completion scripts: clap's, and with them the names of images and containers, which `xebec complete` prints when a shell asks.
//! That command reads the records of both, starts no daemon, makes nothing, and prints nothing when it cannot read them.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Arg, Command, ValueEnum};
use clap_complete::Shell;
use xebec_images::record::Records;

use crate::args::{Cli, CompleteArgs, NameKind};

/// What names most images: it can be left out.
const USUAL: [&str; 2] = ["docker.io/library/", "docker.io/"];

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> String {
    // clap panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::documented(), "xebec", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let places = places();
    match shell {
        Shell::Bash => script + &bash(&places),
        Shell::Fish => script + &fish(&places),
        Shell::Zsh => zsh(&script, &places),
        _ => script,
    }
}

/// A command whose first argument is a name.
struct Place {
    /// The words of the command, such as `cache pin`.
    path: Vec<String>,
    /// clap's name of the argument.
    id: String,
    /// What it names, as `xebec complete` takes it; nothing if it names neither image nor container.
    kinds: String,
    /// Whether all further arguments are such names, too.
    is_list: bool,
    /// Whether the command has no other arguments.
    is_alone: bool,
    /// The options that take the next word.
    valued: Vec<String>,
}

/// All commands that have arguments.
fn places() -> Vec<Place> {
    let mut command = Cli::documented();
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
    let names = options.flat_map(|option| {
        let long = option.get_long_and_visible_aliases().unwrap_or_default();
        let short = option.get_short().map(|short| format!("-{short}"));
        long.into_iter().map(|long| format!("--{long}")).chain(short)
    });
    names.collect()
}

/// bash breaks words at colons, and hands over what follows; names are compared as a whole here.
fn bash(places: &[Place]) -> String {
    let cases = places
        .iter()
        .filter(|place| !place.kinds.is_empty())
        .map(|place| {
            format!(
                "            \"{}\") kinds=\"{}\" many={} valued=\" {} \" ;;\n",
                place.path.join(" "),
                place.kinds,
                if place.is_list { "1" } else { "" },
                place.valued.join(" ")
            )
        });
    include_str!("completion/names.bash").replace("            # CASES\n", &cases.collect::<String>())
}

fn fish(places: &[Place]) -> String {
    let lines = places
        .iter()
        .filter(|place| !place.kinds.is_empty())
        .map(|place| {
            let within: Vec<String> = place
                .path
                .iter()
                .enumerate()
                .map(|(depth, word)| match depth {
                    0 => format!("__fish_xebec_using_subcommand {word}"),
                    _ => format!("__fish_seen_subcommand_from {word}"),
                })
                .collect();
            format!(
                "complete -c xebec -n \"{}\" {}-a \"(xebec complete {} -- (commandline -ct) 2>/dev/null)\"\n",
                within.join("; and "),
                if place.is_alone { "-f " } else { "" },
                place.kinds
            )
        });
    lines.collect()
}

/// The arguments of clap's script get an action. It has them by clap's names, whose meaning must be the same everywhere.
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
                *line = line.replace(":_default'", &format!(":_xebec_names {kinds}'"));
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
        &[Self::Images, Self::Containers, Self::Networks, Self::Volumes]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(match self {
            Self::Images => "images".into(),
            Self::Containers => "containers".into(),
            Self::Networks => "networks".into(),
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
    fn the_scripts_ask_for_names_where_they_belong() {
        let bash = script(Shell::Bash);
        for line in [
            "\"rmi\") kinds=\"images\" many=1 ",
            "\"run\") kinds=\"images\" many= ",
            "\"stop\") kinds=\"containers\" many=1 ",
            "\"exec\") kinds=\"containers\" many= ",
            "\"cache pin\") kinds=\"images\" many= ",
            "\"explain\") kinds=\"containers images\" many= ",
            "\"volume rm\") kinds=\"volumes\" many=1 ",
            "\"network rm\") kinds=\"networks\" many=1 ",
        ] {
            assert!(bash.contains(line), "{line}");
        }
        assert!(!bash.contains("\"umount\") kinds"));
        let fish = script(Shell::Fish);
        for line in [
            "\"__fish_xebec_using_subcommand rmi\" -f -a \"(xebec complete images -- ",
            "\"__fish_xebec_using_subcommand cache; and __fish_seen_subcommand_from pin\" -f -a ",
            "\"__fish_xebec_using_subcommand run\" -a \"(xebec complete images -- ",
        ] {
            assert!(fish.contains(line), "{line}");
        }
        let zsh = script(Shell::Zsh);
        assert!(zsh.contains(":_xebec_names images'"));
        assert!(zsh.contains(":_xebec_names containers images'"));
        assert!(zsh.contains("\n_xebec_names() {"));
    }
}
