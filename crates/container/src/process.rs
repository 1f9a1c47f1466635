//! The container's first process: its command line, environment, working directory and user.
//!
//! The rules are docker's, because images are written for them. The user's entrypoint replaces the image's
//! entrypoint *and* its `Cmd`. The user's command replaces `Cmd` only. Variables of the user win over those
//! of the image, and those over the defaults.

use std::path::Path;

use crate::user::{self, Identity};
use crate::{ImageConfig, PidMode, RunError, RunOptions};

/// The default of `PATH`; docker's and containerd's.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The terminal type that docker and containerd announce.
pub(crate) const DEFAULT_TERM: &str = "xterm";

/// The container's first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Never empty.
    pub args: Vec<String>,
    /// Names are unique.
    pub env: Vec<(String, String)>,
    /// Absolute.
    pub cwd: String,
    pub identity: Identity,
}

impl Process {
    /// The process by the image's configuration and the user's options. Looks the user up in the image's
    /// `/etc/passwd` and `/etc/group` through `view`, and never leaves the view.
    pub(crate) fn resolve(view: &Path, image: &ImageConfig, options: &RunOptions) -> Result<Self, RunError> {
        let user = options.user.as_deref().unwrap_or(&image.user);
        let mut identity = user::resolve(view, user)?;
        user::add_groups(view, &options.group_add, &mut identity)?;
        Self::of(identity, image, options)
    }

    /// The process if the image's own user is still the remembered one. `None` if the user chose another one.
    pub(crate) fn predict(image: &ImageConfig, remembered: &Identity, options: &RunOptions) -> Option<Self> {
        // A container that sees other processes is not told from them while it waits.
        let is_alone = options.pid == PidMode::Private;
        if options.user.is_some() || !options.group_add.is_empty() || !is_alone {
            return None;
        }
        Self::of(remembered.clone(), image, options).ok()
    }

    /// The process of this user.
    pub(crate) fn of(
        identity: Identity,
        image: &ImageConfig,
        options: &RunOptions,
    ) -> Result<Self, RunError> {
        let process = Process {
            args: command_line(image, options.entrypoint.as_deref(), &options.command)?,
            env: env(image, options, &identity)?,
            cwd: cwd(image, options)?,
            identity,
        };
        refuse_nul(&process.args, &process.env, &process.cwd)?;
        Ok(process)
    }
}

/// Refuses strings with a NUL byte, at which the kernel would cut them.
pub(crate) fn refuse_nul(args: &[String], env: &[(String, String)], cwd: &str) -> Result<(), RunError> {
    let mut texts = env.iter().flat_map(|(name, value)| [name, value]);
    let parts = [
        ("the command", args.iter().any(|arg| arg.contains('\0'))),
        ("the environment", texts.any(|text| text.contains('\0'))),
        ("the working directory", cwd.contains('\0')),
    ];
    match parts.iter().find(|(_, nul)| *nul) {
        Some((what, _)) => Err(RunError::Nul { what }),
        None => Ok(()),
    }
}

/// The command line of a container's first process, by docker's rules: `entrypoint` replaces the image's
/// entrypoint and its `Cmd`, and a `command` that is not empty replaces the image's `Cmd` only.
///
/// # Errors
/// [`RunError::NoCommand`] if neither the image nor the caller names a command.
pub fn command_line(
    image: &ImageConfig,
    entrypoint: Option<&[String]>,
    command: &[String],
) -> Result<Vec<String>, RunError> {
    let (entrypoint, cmd) = match entrypoint {
        Some(entrypoint) => (entrypoint, command),
        None if command.is_empty() => (image.entrypoint.as_slice(), image.cmd.as_slice()),
        None => (image.entrypoint.as_slice(), command),
    };
    let args: Vec<String> = entrypoint.iter().chain(cmd).cloned().collect();
    match args.first() {
        Some(program) if !program.is_empty() => Ok(args),
        _ => Err(RunError::NoCommand),
    }
}

fn cwd(image: &ImageConfig, options: &RunOptions) -> Result<String, RunError> {
    let cwd = match options.workdir.as_deref().unwrap_or(&image.working_dir) {
        "" => "/",
        cwd => cwd,
    };
    if cwd.starts_with('/') {
        Ok(cwd.to_owned())
    } else {
        Err(RunError::Workdir(cwd.to_owned()))
    }
}

fn env(
    image: &ImageConfig,
    options: &RunOptions,
    identity: &Identity,
) -> Result<Vec<(String, String)>, RunError> {
    let mut env = Environment::default();
    env.set("PATH", DEFAULT_PATH);
    if options.tty {
        env.set("TERM", DEFAULT_TERM);
    }
    env.set("HOME", &identity.home);
    // An entry without '=' sets nothing. Docker ignores such a mistake of a builder, too.
    for (name, value) in image.env.iter().filter_map(|entry| entry.split_once('=')) {
        if !name.is_empty() {
            env.set(name, value);
        }
    }
    for (name, value) in &options.env {
        if name.is_empty() || name.contains('=') {
            return Err(RunError::EnvName(name.clone()));
        }
        env.set(name, value);
    }
    Ok(env.0)
}

/// Variables in the order in which they were first set.
#[derive(Default)]
struct Environment(Vec<(String, String)>);

impl Environment {
    fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|&s| s.to_owned()).collect()
    }

    fn image() -> ImageConfig {
        ImageConfig {
            entrypoint: strings(&["/entry"]),
            cmd: strings(&["serve", "-x"]),
            env: strings(&["PATH=/opt", "LANG=C", "broken", "EMPTY="]),
            working_dir: "/srv".into(),
            ..ImageConfig::default()
        }
    }

    #[test]
    fn the_command_line_follows_dockers_rules() {
        let line = |entrypoint: Option<&[&str]>, command: &[&str]| {
            let options = RunOptions {
                entrypoint: entrypoint.map(strings),
                command: strings(command),
                ..RunOptions::default()
            };
            command_line(&image(), options.entrypoint.as_deref(), &options.command)
                .map(|args| args.join(" "))
                .ok()
        };
        assert_eq!(line(None, &[]).unwrap(), "/entry serve -x");
        assert_eq!(line(None, &["other"]).unwrap(), "/entry other");
        assert_eq!(line(Some(&["sh"]), &[]).unwrap(), "sh");
        assert_eq!(line(Some(&["sh", "-c"]), &["id"]).unwrap(), "sh -c id");
        assert_eq!(line(Some(&[]), &["id"]).unwrap(), "id");
        assert_eq!(line(Some(&[]), &[]), None);
        assert_eq!(line(Some(&[""]), &[]), None);
    }

    #[test]
    fn variables_of_the_user_win_over_the_images_and_the_defaults() {
        let directory = tempfile::tempdir().unwrap();
        let options = RunOptions {
            env: vec![("LANG".into(), "de".into()), ("NEW".into(), "a=b".into())],
            tty: true,
            ..RunOptions::default()
        };
        let process = Process::resolve(directory.path(), &image(), &options).unwrap();
        let line: Vec<String> = process
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            line,
            [
                "PATH=/opt",
                "TERM=xterm",
                "HOME=/",
                "LANG=de",
                "EMPTY=",
                "NEW=a=b"
            ]
        );
        assert_eq!(process.cwd, "/srv");
    }

    #[test]
    fn impossible_processes_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused =
            |options: RunOptions| Process::resolve(directory.path(), &image(), &options).unwrap_err();
        let options = RunOptions::default;
        assert!(matches!(
            refused(RunOptions {
                command: strings(&["a\0b"]),
                ..options()
            }),
            RunError::Nul { .. }
        ));
        assert!(matches!(
            refused(RunOptions {
                workdir: Some("srv".into()),
                ..options()
            }),
            RunError::Workdir(_)
        ));
        let env = |name: &str| vec![(name.to_owned(), String::new())];
        assert!(matches!(
            refused(RunOptions {
                env: env("A=B"),
                ..options()
            }),
            RunError::EnvName(_)
        ));
        assert!(matches!(
            refused(RunOptions {
                env: env(""),
                ..options()
            }),
            RunError::EnvName(_)
        ));
    }
}
