//! The `process.json` of a command that joins a container (runtime-spec, `config.md`, `process`).
//!
//! It is the process of the container's own configuration with another command line, so that everything that confines
//! the container confines the command. The differences are named here, and there are no others.

use serde_json::{Value, json};

use super::options::ExecOptions;
use crate::process::DEFAULT_TERM;
use crate::user::Identity;
use crate::{RunError, process, terminal};

/// The users of a command that runs as another user than its container.
pub(super) struct Users {
    /// The one that the command runs as.
    pub(super) wanted: Identity,
    /// The home directory of the container's own user, if it is listed.
    pub(super) home_before: Option<String>,
}

/// Composes `process.json` from the container's own process.
pub(super) fn compose(
    mut own: Value,
    options: &ExecOptions,
    users: Option<Users>,
) -> Result<Value, RunError> {
    check(options)?;
    let mut env = Variables::of(&own["env"]);
    if options.tty && env.get("TERM").is_none() {
        env.set("TERM", DEFAULT_TERM);
    }
    if let Some(Users { wanted, home_before }) = users {
        own["user"] = json!({ "uid": wanted.uid, "gid": wanted.gid, "additionalGids": wanted.additional });
        // A home directory that the image or the user chose stays.
        if env
            .get("HOME")
            .is_none_or(|home| Some(home) == home_before.as_deref())
        {
            env.set("HOME", &wanted.home);
        }
    }
    for (name, value) in &options.env {
        env.set(name, value);
    }
    own["args"] = json!(options.command);
    own["env"] = json!(env.0);
    own["terminal"] = json!(options.tty);
    // The command may ask for it before this process has its terminal.
    if let Some(size) = terminal::own_size().filter(|_| options.tty) {
        own["consoleSize"] = json!({ "height": size.ws_row, "width": size.ws_col });
    }
    if let Some(workdir) = &options.workdir {
        own["cwd"] = json!(workdir);
    }
    Ok(own)
}

fn check(options: &ExecOptions) -> Result<(), RunError> {
    if options.command.first().is_none_or(String::is_empty) {
        return Err(RunError::NoExecCommand);
    }
    if let Some((name, _)) = options
        .env
        .iter()
        .find(|(name, _)| name.is_empty() || name.contains('='))
    {
        return Err(RunError::EnvName(name.clone()));
    }
    if let Some(workdir) = options.workdir.as_ref().filter(|path| !path.starts_with('/')) {
        return Err(RunError::Workdir(workdir.clone()));
    }
    process::refuse_nul(
        &options.command,
        &options.env,
        options.workdir.as_deref().unwrap_or_default(),
    )
}

/// Variables as the runtime's configuration has them, `NAME=value`.
struct Variables(Vec<String>);

impl Variables {
    fn of(list: &Value) -> Self {
        let entries = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        Self(entries.map(str::to_owned).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|entry| value_of(entry, name))
    }

    fn set(&mut self, name: &str, value: &str) {
        let entry = format!("{name}={value}");
        match self.0.iter_mut().find(|entry| value_of(entry, name).is_some()) {
            Some(old) => *old = entry,
            None => self.0.push(entry),
        }
    }
}

fn value_of<'a>(entry: &'a str, name: &str) -> Option<&'a str> {
    entry.strip_prefix(name)?.strip_prefix('=')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn own() -> Value {
        json!({
            "terminal": false,
            "user": { "uid": 1000, "gid": 100, "additionalGids": [50] },
            "args": ["/entry", "serve"],
            "env": ["PATH=/bin", "HOME=/home/app", "A=image"],
            "cwd": "/srv",
            "capabilities": { "bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"] },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": 1, "hard": 2 }],
            "noNewPrivileges": true,
            "apparmorProfile": "docker-default",
            "selinuxLabel": "system_u:system_r:container_t:s0:c1,c2",
        })
    }

    fn options() -> ExecOptions {
        ExecOptions {
            command: vec!["id".into()],
            ..ExecOptions::default()
        }
    }

    fn root(home_before: Option<&str>) -> Users {
        Users {
            wanted: Identity {
                uid: 0,
                gid: 0,
                additional: vec![],
                home: "/root".into(),
            },
            home_before: home_before.map(str::to_owned),
        }
    }

    #[test]
    fn only_the_command_line_differs_by_default() {
        let composed = compose(own(), &options(), None).unwrap();
        let mut wanted = own();
        wanted["args"] = json!(["id"]);
        assert_eq!(composed, wanted);
    }

    #[test]
    fn what_confines_the_container_stays_whatever_is_asked() {
        let asked = ExecOptions {
            env: vec![("A".into(), "mine".into()), ("B".into(), "a=b".into())],
            workdir: Some("/tmp".into()),
            user: Some("root".into()),
            tty: true,
            ..options()
        };
        let composed = compose(own(), &asked, Some(root(Some("/home/app")))).unwrap();
        for kept in [
            "capabilities",
            "rlimits",
            "noNewPrivileges",
            "apparmorProfile",
            "selinuxLabel",
        ] {
            assert_eq!(composed[kept], own()[kept], "{kept}");
        }
        assert_eq!(
            composed["env"],
            json!(["PATH=/bin", "HOME=/root", "A=mine", "TERM=xterm", "B=a=b"])
        );
        assert_eq!(
            composed["user"],
            json!({ "uid": 0, "gid": 0, "additionalGids": [] })
        );
        assert_eq!(composed["cwd"], "/tmp");
        assert_eq!(composed["terminal"], true);
        assert_eq!(composed["args"], json!(["id"]));
    }

    #[test]
    fn a_home_directory_that_was_chosen_stays() {
        for before in [None, Some("/elsewhere")] {
            let composed = compose(own(), &options(), Some(root(before))).unwrap();
            assert_eq!(composed["env"], own()["env"], "{before:?}");
        }
    }

    #[test]
    fn impossible_commands_are_refused() {
        let refused = |options: ExecOptions| compose(own(), &options, None).unwrap_err();
        let none = refused(ExecOptions::default());
        assert!(matches!(none, RunError::NoExecCommand));
        let name = refused(ExecOptions {
            env: vec![("A=B".into(), String::new())],
            ..options()
        });
        assert!(matches!(name, RunError::EnvName(_)));
        let workdir = refused(ExecOptions {
            workdir: Some("srv".into()),
            ..options()
        });
        assert!(matches!(workdir, RunError::Workdir(_)));
        let nul = refused(ExecOptions {
            command: vec!["a\0b".into()],
            ..options()
        });
        assert!(matches!(nul, RunError::Nul { .. }));
    }
}
