//! How systemd starts Docker: its unit, the drop-ins of it, and what they say of containerd.
//!
//! Read as systemd reads them (systemd.unit(5), systemd.service(5)). Lines that end in a backslash go on. A drop-in is hidden by one of
//! the same name in a directory that comes before. Drop-ins come in the order of their names, and an empty `ExecStart=` takes back what
//! came before. So an administrator's text in a drop-in is changed, not the text that a package brought.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use xebec_protocol::failure::{Failure, FailureKind};

use crate::Options;

/// Where units and their drop-ins may be; what is in an earlier one hides what is in a later one.
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Docker's unit.
const UNIT: &str = "docker.service";
/// Directories of drop-ins for it: its own, and those of all services.
const DROP_INS: [&str; 2] = ["docker.service.d", "service.d"];
/// The option that says where containerd listens.
const OPTION: &str = "--containerd";

/// How Docker is started, but for what Xebec says of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The text after `ExecStart=`, on one line; empty if there is none.
    text: String,
    /// Drop-ins that say it, and that systemd reads after Xebec's.
    later: Vec<PathBuf>,
}

impl CommandLine {
    /// Reads it from a host, without the drop-in `ours`.
    ///
    /// # Errors
    /// When a unit or a drop-in is there and cannot be read.
    pub(super) fn of_host(options: &Options, ours: &Path) -> Result<Self, Failure> {
        let mut command = Self::default();
        for folder in FOLDERS {
            if let Some(text) = read(options, &Path::new(folder).join(UNIT))? {
                command.follow(&text);
                break;
            }
        }
        for (name, path) in drop_ins(options)? {
            if path == ours {
                continue;
            }
            let text = read(options, &path)?.unwrap_or_default();
            let is_later = Some(name.as_os_str()) > ours.file_name();
            if command.follow(&text) && is_later {
                command.later.push(path);
            }
        }
        Ok(command)
    }

    /// Takes in what a file says of it; whether that is anything.
    fn follow(&mut self, text: &str) -> bool {
        let said = assignments(text);
        if let Some(last) = said.last() {
            self.text.clone_from(last);
        }
        !said.is_empty()
    }

    /// Where it says that containerd listens.
    pub(super) fn containerd(&self) -> Option<&str> {
        // The last one counts for Docker, too.
        self.text.get(self.values().pop()?)
    }

    /// Whether it has words that are known only when it runs.
    pub(super) fn has_variables(&self) -> bool {
        self.text.contains('$')
    }

    /// A drop-in with another place of containerd.
    ///
    /// # Errors
    /// When systemd would read another drop-in after it that says the whole line again.
    pub(super) fn drop_in(&self, ours: &Path, socket: &str) -> Result<String, Failure> {
        if let Some(later) = self.later.first() {
            let message = format!(
                "{} says how Docker is started, and is read after {}: write {OPTION}={socket} in it by hand, or give it a name \
                 that sorts before",
                later.display(),
                ours.display()
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        let mut text = self.text.clone();
        for value in self.values().into_iter().rev() {
            text.replace_range(value, socket);
        }
        Ok(format!("[Service]\nExecStart=\nExecStart={text}\n"))
    }

    /// Where in the line the values of the option are.
    fn values(&self) -> Vec<Range<usize>> {
        let mut values = Vec::new();
        let mut is_value = false;
        for word in words(&self.text) {
            let said = self.text.get(word.clone()).unwrap_or_default();
            if is_value {
                values.push(word);
                is_value = false;
                continue;
            }
            match said.strip_prefix(OPTION) {
                Some("") => is_value = true,
                Some(rest) if rest.starts_with('=') => values.push(word.start + OPTION.len() + 1..word.end),
                _ => {}
            }
        }
        values
    }
}

/// Where the words of a command line are, without quotes around them.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut at = 0;
    for word in text.split(|letter: char| letter.is_ascii_whitespace()) {
        let bare = word.trim_matches(['"', '\'']);
        let start = at + (word.len() - word.trim_start_matches(['"', '\'']).len());
        if !bare.is_empty() {
            words.push(start..start + bare.len());
        }
        at += word.len() + 1;
    }
    words
}

/// The values of `ExecStart=` in a unit's or a drop-in's section of the service, in order.
fn assignments(text: &str) -> Vec<String> {
    let mut said = Vec::new();
    let mut is_service = false;
    for line in joined(text) {
        let line = line.trim();
        if line.starts_with('[') {
            is_service = line == "[Service]";
        } else if is_service
            && let Some((name, value)) = line.split_once('=')
            && name.trim_end() == "ExecStart"
        {
            said.push(value.trim().to_owned());
        }
    }
    said
}

/// The lines of a unit, each with those that continue it. Comments are left out, between the parts of a line, too.
fn joined(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut whole = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        match line.trim_end().strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                whole.push(' ');
            }
            None => {
                whole.push_str(line);
                lines.push(std::mem::take(&mut whole));
            }
        }
    }
    lines.push(whole);
    lines
}

/// The drop-ins that count, in the order in which systemd reads them.
fn drop_ins(options: &Options) -> Result<BTreeMap<OsString, PathBuf>, Failure> {
    let mut found = BTreeMap::new();
    for of in DROP_INS {
        for folder in FOLDERS {
            let folder = Path::new(folder).join(of);
            let failed = |error| Failure::host(format!("read {}", folder.display()), error);
            let entries = match std::fs::read_dir(options.here(&folder)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            for entry in entries {
                let name = entry.map_err(failed)?.file_name();
                let path = folder.join(&name);
                if path.extension().is_some_and(|extension| extension == "conf") {
                    found.entry(name).or_insert(path);
                }
            }
        }
    }
    Ok(found)
}

/// A file's text; one that is masked, a link to `/dev/null`, says nothing.
fn read(options: &Options, path: &Path) -> Result<Option<String>, Failure> {
    let here = options.here(path);
    if std::fs::read_link(options.sysroot.join(path.strip_prefix("/").unwrap_or(path)))
        .is_ok_and(|target| target == Path::new("/dev/null"))
    {
        return Ok(Some(String::new()));
    }
    match std::fs::read(&here) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::host(format!("read {}", path.display()), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> CommandLine {
        let mut command = CommandLine::default();
        command.follow(text);
        command
    }

    #[test]
    fn lines_go_on_and_comments_are_between_them() {
        let text = "[Unit]\nExecStart=not this\n[Service]\n#ExecStart=nor this\nExecStart = dockerd \\\n  # why\n; so\n  \
                    --containerd \\\n/run/c.sock \\\n -H fd://\nRestart=always\n";
        let command = command(text);
        assert_eq!(command.containerd(), Some("/run/c.sock"));
        let words: Vec<&str> = command.text.split_whitespace().collect();
        assert_eq!(words, ["dockerd", "--containerd", "/run/c.sock", "-H", "fd://"]);
    }

    #[test]
    fn only_the_options_value_is_changed() {
        for (before, after) in [
            (
                "dockerd --containerd=/a --other=/a/b",
                "dockerd --containerd=/new --other=/a/b",
            ),
            (
                "dockerd --containerd /a -H fd://",
                "dockerd --containerd /new -H fd://",
            ),
            ("dockerd \"--containerd=/a\"", "dockerd \"--containerd=/new\""),
            (
                "dockerd --containerd '/b' --containerd=/a",
                "dockerd --containerd '/new' --containerd=/new",
            ),
        ] {
            let command = command(&format!("[Service]\nExecStart={before}\n"));
            assert_eq!(command.containerd(), Some("/a"), "{before}");
            let text = command.drop_in(Path::new("/d/x.conf"), "/new");
            assert_eq!(
                text.ok(),
                Some(format!("[Service]\nExecStart=\nExecStart={after}\n"))
            );
        }
        for other in [
            "dockerd",
            "dockerd --containerd-namespace=x",
            "dockerd --containerd",
        ] {
            assert_eq!(
                command(&format!("[Service]\nExecStart={other}\n")).containerd(),
                None
            );
        }
    }
}
