//! `xebec-registry user`: edits the htpasswd file. The password never stands in an argument, where every user of the host could
//! read it.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use xebec_access::htpasswd::{self, Htpasswd};
use xebec_access::password::{Hash, MAX_PASSWORD};
use xebec_kernel::{file, lock};
use xebec_registry_server::config::Config;

use crate::args::{UserAction, Users};

/// The character that a terminal sends for Ctrl-C when it does not act on it itself.
const INTERRUPT: char = '\u{3}';

/// Carries a command out.
pub(crate) fn carry_out(args: &Users) -> anyhow::Result<()> {
    let path = path(args)?;
    match &args.action {
        UserAction::Add { name } => {
            htpasswd::check_name(name)?;
            let hash = Hash::of(&password(name)?)?;
            edit(&path, |text| Some(htpasswd::with_user(text, name, &hash)))?;
            outln!("{name} may log in");
        }
        UserAction::Rm { name } => {
            if !edit(&path, |text| htpasswd::without_user(text, name))? {
                bail!(
                    "{} has no user {name:?}; `xebec-registry user list` prints those that it has",
                    path.display()
                );
            }
            outln!("{name} may log in no more");
        }
        UserAction::List => {
            for user in sound(&path, &read(&path)?)?.users() {
                outln!("{}", user.name);
            }
        }
    }
    Ok(())
}

fn path(args: &Users) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.htpasswd {
        return Ok(path.clone());
    }
    let Some(config) = &args.config else {
        bail!("name the file: --htpasswd FILE, or --config FILE for a configuration that has auth.htpasswd");
    };
    let auth = Config::read(config)?.auth.and_then(|auth| auth.htpasswd);
    auth.with_context(|| {
        format!(
            "{} has no auth.htpasswd; add it, or give --htpasswd FILE",
            config.display()
        )
    })
}

/// Changes the file as a whole, while no other of these commands does. Whether there was something to change.
fn edit(path: &Path, change: impl FnOnce(&str) -> Option<String>) -> anyhow::Result<bool> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let beside = PathBuf::from(beside);
    let _lock =
        lock::lock_file(&beside, 0o600).with_context(|| format!("cannot lock {}", beside.display()))?;
    let before = read(path)?;
    // A damaged file is left as it is, for the user who damaged it.
    sound(path, &before)?;
    let Some(after) = change(&before) else {
        return Ok(false);
    };
    file::replace_atomically(path, after.as_bytes(), 0o600)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

fn sound(path: &Path, text: &str) -> anyhow::Result<Htpasswd> {
    Htpasswd::parse(text).with_context(|| format!("{} is not changed", path.display()))
}

/// The file's text; empty if there is no file yet.
fn read(path: &Path) -> anyhow::Result<String> {
    let bytes = match file::read_limited(path, htpasswd::MAX_FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    String::from_utf8(bytes).with_context(|| format!("{} is not text", path.display()))
}

/// The new password: asked for twice at a terminal, else the first line of standard input.
fn password(name: &str) -> anyhow::Result<String> {
    if io::stdin().is_terminal() {
        let once = asked(&format!("New password for {name}: "))?;
        if once != asked("The same again: ")? {
            bail!("the two passwords differ; nothing is changed");
        }
        return Ok(once);
    }
    let mut text = String::new();
    let limit = MAX_PASSWORD as u64 + 2;
    io::stdin()
        .take(limit)
        .read_to_string(&mut text)
        .context("cannot read the password from standard input")?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn asked(question: &str) -> anyhow::Result<String> {
    let silent = Silent::begin().context("cannot have the terminal show nothing of what is typed")?;
    errln!("{question}");
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    drop(silent);
    read.context("cannot read the password")?;
    if line.contains(INTERRUPT) {
        bail!("interrupted; nothing is changed");
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal that shows nothing of what is typed, and ends no process, until this goes.
struct Silent(Termios);

impl Silent {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}
