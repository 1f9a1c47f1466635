//! Instructions of a Dockerfile that change an image's configuration: `xebec commit --change`.

use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::words::words;

/// The instructions, for messages.
const KNOWN: &str = "CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME or WORKDIR";
/// What runs an instruction's command that is no list.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];
/// Most ports of one range.
const PORTS: u32 = 1000;

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `CMD`: the command, or the arguments of the entrypoint.
    Command(Vec<String>),
    /// `ENTRYPOINT`: the beginning of the command line. Without a `CMD` beside it the image has no command any more, as with docker.
    Entrypoint(Vec<String>),
    /// `ENV`: names and values.
    Environment(Vec<(String, String)>),
    /// `EXPOSE`: such as `80/tcp`.
    Ports(Vec<String>),
    /// `LABEL`: names and values.
    Labels(Vec<(String, String)>),
    /// `STOPSIGNAL`.
    StopSignal(String),
    /// `USER`.
    User(String),
    /// `VOLUME`: paths.
    Volumes(Vec<String>),
    /// `WORKDIR`: one that is not absolute begins at the one before.
    WorkingDirectory(String),
}

/// An instruction that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{instruction:?}: {problem}")]
pub struct ChangeError {
    instruction: String,
    problem: String,
}

impl FromStr for Change {
    type Err = ChangeError;

    fn from_str(text: &str) -> Result<Self, ChangeError> {
        parse(text).map_err(|problem| ChangeError {
            instruction: text.to_owned(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Change, String> {
    let text = text.trim();
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let name = name.to_ascii_uppercase();
    if rest.is_empty() {
        return Err(format!("an instruction is {KNOWN}, and what it says"));
    }
    let one = || match words(rest)?.as_slice() {
        [word] if !word.is_empty() => Ok(word.clone()),
        _ => Err(format!("{name} takes one word")),
    };
    match name.as_str() {
        "CMD" => Ok(Change::Command(command(rest)?)),
        "ENTRYPOINT" => Ok(Change::Entrypoint(command(rest)?)),
        "ENV" => Ok(Change::Environment(pairs(rest)?)),
        "LABEL" => Ok(Change::Labels(pairs(rest)?)),
        "EXPOSE" => {
            let ranges: Vec<Vec<String>> = words(rest)?
                .iter()
                .map(|word| ports(word))
                .collect::<Result<_, _>>()?;
            Ok(Change::Ports(ranges.concat()))
        }
        "STOPSIGNAL" => {
            let signal = one()?;
            let is_signal = signal
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-'));
            is_signal
                .then_some(Change::StopSignal(signal))
                .ok_or("a signal is a name such as SIGQUIT, or a number".to_owned())
        }
        "USER" => Ok(Change::User(one()?)),
        "WORKDIR" => Ok(Change::WorkingDirectory(one()?)),
        "VOLUME" => {
            let paths = match list(rest)? {
                Some(paths) => paths,
                None => words(rest)?,
            };
            match paths.iter().all(|path| path.starts_with('/')) {
                true => Ok(Change::Volumes(paths)),
                false => Err("a volume is an absolute path".to_owned()),
            }
        }
        _ => Err(format!("an instruction is {KNOWN}")),
    }
}

/// A list in JSON; `None` for any other text.
fn list(text: &str) -> Result<Option<Vec<String>>, String> {
    match text.starts_with('[') {
        true => serde_json::from_str(text)
            .map(Some)
            .map_err(|error| format!("this is no list of texts in JSON: {error}")),
        false => Ok(None),
    }
}

fn command(text: &str) -> Result<Vec<String>, String> {
    Ok(list(text)?.unwrap_or_else(|| {
        let shell = SHELL.iter().map(|&word| word.to_owned());
        shell.chain([text.to_owned()]).collect()
    }))
}

/// `NAME=VALUE …`, or `NAME VALUE` for a single one.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let words = words(text)?;
    if let Some((name, rest)) = words.split_first()
        && !name.contains('=')
        && !rest.is_empty()
    {
        return Ok(vec![(name.clone(), rest.join(" "))]);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{word:?} is not NAME=VALUE")),
    };
    words.iter().map(pair).collect()
}

/// `PORT[-PORT][/PROTOCOL]`.
fn ports(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("{text:?} is not PORT, PORT-PORT or PORT/udp");
    let (range, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0);
    let (first, last) = port(first).zip(port(last)).ok_or_else(wrong)?;
    let is_range = first <= last && u32::from(last - first) < PORTS;
    match is_range && matches!(protocol, "tcp" | "udp" | "sctp") {
        true => Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect()),
        false => Err(wrong()),
    }
}

/// Changes the member `config` of an image's configuration.
pub(crate) fn apply(changes: &[Change], config: &mut Map<String, Value>) {
    for change in changes {
        match change {
            Change::Command(command) => set(config, "Cmd", json!(command)),
            Change::Entrypoint(command) => {
                set(config, "Entrypoint", json!(command));
                if !changes.iter().any(|change| matches!(change, Change::Command(_))) {
                    config.remove("Cmd");
                }
            }
            Change::Environment(variables) => {
                let kept = config.get("Env").and_then(Value::as_array);
                let mut all: Vec<Value> = kept.cloned().unwrap_or_default();
                for (name, value) in variables {
                    let beginning = format!("{name}=");
                    let new = json!(format!("{beginning}{value}"));
                    let is_it =
                        |old: &&mut Value| old.as_str().is_some_and(|old| old.starts_with(&beginning));
                    match all.iter_mut().find(is_it) {
                        Some(old) => *old = new,
                        None => all.push(new),
                    }
                }
                set(config, "Env", Value::Array(all));
            }
            Change::Ports(ports) => add(config, "ExposedPorts", ports.iter().map(|port| (port, json!({})))),
            Change::Labels(labels) => {
                add(
                    config,
                    "Labels",
                    labels.iter().map(|(name, value)| (name, json!(value))),
                );
            }
            Change::StopSignal(signal) => set(config, "StopSignal", json!(signal)),
            Change::User(user) => set(config, "User", json!(user)),
            Change::Volumes(paths) => add(config, "Volumes", paths.iter().map(|path| (path, json!({})))),
            Change::WorkingDirectory(path) => {
                let before = config.get("WorkingDir").and_then(Value::as_str).unwrap_or("/");
                let path = std::path::Path::new("/").join(before).join(path);
                set(config, "WorkingDir", json!(path.to_string_lossy()));
            }
        }
    }
}

fn set(config: &mut Map<String, Value>, name: &str, value: Value) {
    config.insert(name.to_owned(), value);
}

/// Adds members to a member that is an object.
fn add<'a>(config: &mut Map<String, Value>, name: &str, members: impl Iterator<Item = (&'a String, Value)>) {
    let mut all = match config.remove(name) {
        Some(Value::Object(all)) => all,
        _ => Map::new(),
    };
    all.extend(members.map(|(name, value)| (name.clone(), value)));
    config.insert(name.to_owned(), Value::Object(all));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn changed(before: Value, instructions: &[&str]) -> Value {
        let changes: Vec<Change> = instructions.iter().map(|text| text.parse().unwrap()).collect();
        let Value::Object(mut config) = before else {
            panic!("an object is wanted");
        };
        apply(&changes, &mut config);
        Value::Object(config)
    }

    #[test]
    fn instructions_do_what_a_dockerfile_does() {
        let before = json!({ "Cmd": ["sh"], "Env": ["PATH=/bin", "A=1"], "WorkingDir": "/srv", "Labels": null, "Other": 7 });
        let after = changed(
            before.clone(),
            &[
                r#"CMD ["serve", "-x"]"#,
                r#"env A=2 B="two words""#,
                "EXPOSE 80 8000-8001/udp",
                "LABEL tier web",
                "STOPSIGNAL SIGQUIT",
                "USER 1000:1000",
                r#"VOLUME ["/data"]"#,
                "WORKDIR app",
            ],
        );
        let wanted = json!({
            "Cmd": ["serve", "-x"], "Env": ["PATH=/bin", "A=2", "B=two words"], "WorkingDir": "/srv/app",
            "Labels": { "tier": "web" }, "Other": 7, "StopSignal": "SIGQUIT", "User": "1000:1000",
            "Volumes": { "/data": {} }, "ExposedPorts": { "80/tcp": {}, "8000/udp": {}, "8001/udp": {} },
        });
        assert_eq!(after, wanted);
        let shell = changed(before.clone(), &["CMD exec serve $PORT"]);
        assert_eq!(shell["Cmd"], json!(["/bin/sh", "-c", "exec serve $PORT"]));
        let entrypoint = changed(before.clone(), &[r#"ENTRYPOINT ["/e"]"#]);
        assert_eq!(
            (&entrypoint["Entrypoint"], &entrypoint["Cmd"]),
            (&json!(["/e"]), &Value::Null)
        );
        let both = changed(before, &[r#"CMD ["a"]"#, r#"ENTRYPOINT ["/e"]"#]);
        assert_eq!(both["Cmd"], json!(["a"]));
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        for text in [
            "",
            "CMD",
            "RUN make",
            "ENV A",
            "ENV =b x=y",
            "EXPOSE 0",
            "EXPOSE 9-8",
            "EXPOSE 80/icmp",
            "EXPOSE 1-65535",
            "CMD [\"a\"",
            "CMD [1]",
            "VOLUME data",
            "USER a b",
            "STOPSIGNAL a;b",
            "ENV A=$B",
        ] {
            let error = text.parse::<Change>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?}: ")), "{error}");
        }
    }
}
