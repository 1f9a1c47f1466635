//! The settings that Docker Engine needs: containerd's image store, our snapshotter as its driver, and its way to containerd by ours.
//!
//! `daemon.json` is JSON, without comments, so it is read, changed and written anew; what it was is kept word for word, and is
//! put back if nobody changed the file since. Docker refuses a key that is also an option of its command line, and packages of
//! Docker start it with `--containerd`: then that option is changed, by a drop-in of its unit, and the key is not set.

mod change;
mod command;

use std::path::Path;

use serde_json::{Map, Value};
use xebec_engines::relay::USUAL_LINK;
use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::settings::USUAL_CONTAINERD;

pub use self::change::DockerChange;
pub(crate) use self::change::changes;
use self::command::CommandLine;
use crate::containerd::NAME;
pub use crate::options::DOCKER_CONFIG;
use crate::plan::{Action, Contents, Plan};
use crate::record::Record;
use crate::{Options, containerd};

/// The unit of the relay.
pub(crate) const UNIT: &str = "xebec-docker.service";
/// Where it goes.
const UNITS: &str = "/etc/systemd/system";
/// Its text.
pub(crate) const UNIT_TEXT: &str = include_str!("../../../packaging/systemd/xebec-docker.service");
/// Says at boot where the link leads until the relay runs.
pub(crate) const LINK_FILE: &str = "/etc/tmpfiles.d/xebec-docker.conf";
/// Changes an option of Docker's command line.
const DROP_IN: &str = "/etc/systemd/system/docker.service.d/xebec.conf";

/// The note about images and containers of another storage driver.
const OTHER_DRIVER: &str = "images and containers that Docker made with another storage driver are invisible, and stay on disk, \
    until that one is set again; restart Docker to use this one: systemctl restart docker (without live-restore that stops its \
    containers)";

/// Has Docker use lazy images; whether anything changed.
pub(crate) fn set(
    options: &Options,
    file: &Path,
    plan: &mut Plan,
    record: &mut Record,
) -> Result<bool, Failure> {
    let text = read(options, file)?;
    let mut settings = parse(file, text.as_deref())?;
    let socket = listens(options)?;
    let command = CommandLine::of_host(options, Path::new(DROP_IN))?;
    let option = command.containerd();
    let there = settings.get("containerd").and_then(Value::as_str);
    check_containerd(file, &socket, option, there)?;
    let mut wanted = vec![
        (path(&["features", "containerd-snapshotter"]), Value::Bool(true)),
        (path(&["storage-driver"]), Value::from(NAME)),
    ];
    if option.is_none() {
        wanted.insert(0, (path(&["containerd"]), Value::from(USUAL_LINK)));
    }
    let mut changes = Vec::new();
    for (key, value) in wanted {
        let before = get(&settings, &key).cloned();
        if before.as_ref() != Some(&value) {
            put(&mut settings, &key, Some(value.clone())).map_err(|at| {
                let message = format!("{}: {at:?} is no object", file.display());
                Failure::new(FailureKind::Usage, message)
            })?;
            changes.push((key, before, value));
        }
    }
    let mut is_new = put_files(options, &socket, &command, plan, record)?;
    is_new |= write(file, text, &settings, changes, plan, record)?;
    if settings.contains_key("userns-remap") {
        plan.notes.push(format!(
            "{} maps the users of all containers (userns-remap), with which Xebec was not tried",
            file.display()
        ));
    }
    if command.has_variables() {
        plan.notes.push(format!(
            "Docker's command line has variables: if one of them brings --containerd, change it there to {USUAL_LINK}, and remove \
             \"containerd\" from {}",
            file.display()
        ));
    }
    if is_new {
        plan.notes.push(OTHER_DRIVER.to_owned());
    }
    Ok(is_new)
}

/// Fails unless Docker uses the containerd that is set up, by its command line or by its file, not by both.
fn check_containerd(
    file: &Path,
    socket: &str,
    option: Option<&str>,
    setting: Option<&str>,
) -> Result<(), Failure> {
    if setting.is_some() && option.is_some() {
        let message = format!(
            "Docker does not start when its command line and {} both say where containerd is: remove \"containerd\" from the \
             file",
            file.display()
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    for said in [option, setting].into_iter().flatten() {
        let said = said.trim_start_matches("unix://");
        if said != socket && said != USUAL_LINK {
            let message = format!(
                "Docker uses the containerd at {said}, and the one that is set up here is at {socket}: name its \
                 configuration by --containerd"
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
    }
    Ok(())
}

fn write(
    file: &Path,
    text: Option<String>,
    settings: &Map<String, Value>,
    changes: Vec<(Vec<String>, Option<Value>, Value)>,
    plan: &mut Plan,
    record: &mut Record,
) -> Result<bool, Failure> {
    let is_done = changes.is_empty();
    let bytes = match is_done {
        true => text.clone().unwrap_or_default(),
        false => pretty(settings)?,
    };
    let lines = changes
        .iter()
        .map(|(key, _, ours)| format!("{} = {ours}", key.join(".")))
        .collect();
    if !is_done {
        let written = Digest::of(bytes.as_bytes());
        match record.docker.iter_mut().find(|known| known.file == file) {
            Some(known) => known.add(&text.unwrap_or_default(), changes, written),
            None => record.docker.push(DockerChange {
                file: file.to_owned(),
                before: text,
                is_whole: true,
                written,
                keys: changes,
            }),
        }
    }
    let action = Action::Write {
        path: file.to_owned(),
        contents: Contents::Bytes(bytes.into_bytes()),
        mode: 0o644,
        lines,
    };
    plan.push(action, "Docker uses the snapshotter", is_done);
    Ok(!is_done)
}

/// The relay's unit, where its link leads before it runs, and the option of Docker's command line if there is one.
fn put_files(
    options: &Options,
    socket: &str,
    command: &CommandLine,
    plan: &mut Plan,
    record: &mut Record,
) -> Result<bool, Failure> {
    let program = options.installed_program();
    let unit = crate::units::placed(UNIT_TEXT, &program, &options.root, &options.run);
    let folder = Path::new(USUAL_LINK)
        .parent()
        .unwrap_or(Path::new("/run"))
        .display();
    let link = format!("d {folder} 0700 root root -\nL {USUAL_LINK} - - - - {socket}\n");
    let mut files = vec![
        (
            Path::new(UNITS).join(UNIT),
            unit,
            "the way from Docker to containerd",
        ),
        (LINK_FILE.into(), link, "where it leads while that does not run"),
    ];
    let mut is_new = false;
    let says = command.containerd();
    if says.is_some_and(|said| said.trim_start_matches("unix://") != USUAL_LINK) {
        files.push((
            DROP_IN.into(),
            command.drop_in(Path::new(DROP_IN), USUAL_LINK)?,
            "Docker's command line says where containerd is",
        ));
    } else {
        is_new |= drop_drop_in(options, plan, record);
    }
    for (path, text, why) in files {
        let is_done = std::fs::read(options.here(&path)).is_ok_and(|there| there == text.as_bytes());
        is_new |= !is_done;
        record.files.insert(path.clone(), Digest::of(text.as_bytes()));
        plan.write(&path, Contents::Bytes(text.into_bytes()), 0o644, why, is_done);
    }
    Ok(is_new)
}

/// Removes the drop-in of an earlier installation: what it was made from says nothing of containerd any more.
fn drop_drop_in(options: &Options, plan: &mut Plan, record: &mut Record) -> bool {
    let Some(written) = record.files.remove(Path::new(DROP_IN)) else {
        return false;
    };
    match std::fs::read(options.here(Path::new(DROP_IN))) {
        Ok(there) if Digest::of(&there) == written => {
            let path = DROP_IN.into();
            plan.push(
                Action::Remove { path },
                "Docker's unit says nothing of containerd now",
                false,
            );
            true
        }
        Ok(_) => {
            let note = format!("{DROP_IN} was changed since, and stays: see what it says of containerd");
            plan.notes.push(note);
            false
        }
        Err(_) => false,
    }
}

/// Whether a file was put there for Docker.
pub(crate) fn is_for_it(file: &Path) -> bool {
    let unit = Path::new(UNITS).join(UNIT);
    [unit.as_path(), Path::new(LINK_FILE), Path::new(DROP_IN)].contains(&file)
}

/// Says it once, however many files of Docker were changed.
fn say_what_is_back(plan: &mut Plan) {
    let note = "Docker goes on with lazy images until it is restarted; what it made with them is invisible then, and its own \
                images and containers are back: systemctl restart docker";
    if !plan.notes.iter().any(|said| said == note) {
        plan.notes.push(note.to_owned());
    }
}

/// Takes back what was changed in `daemon.json`.
pub(crate) fn take_back(options: &Options, change: &DockerChange, plan: &mut Plan) -> Result<(), Failure> {
    let file = &change.file;
    let why = "it was set by the installation";
    let Some(text) = read(options, file)? else {
        return Ok(());
    };
    let (bytes, lines) = if change.is_whole && Digest::of(text.as_bytes()) == change.written {
        let Some(before) = &change.before else {
            say_what_is_back(plan);
            plan.push(Action::Remove { path: file.clone() }, why, false);
            return Ok(());
        };
        (before.clone(), vec!["as it was".to_owned()])
    } else {
        let mut settings = parse(file, Some(&text))?;
        let mut lines = Vec::new();
        for (key, before, ours) in &change.keys {
            let name = key.join(".");
            if get(&settings, key) == Some(ours) && put(&mut settings, key, before.clone()).is_ok() {
                lines.push(match before {
                    Some(before) => format!("{name} = {before}"),
                    None => format!("{name} goes"),
                });
            } else if get(&settings, key) != before.as_ref() {
                let note = format!("{}: {name} was changed since, and stays", file.display());
                plan.notes.push(note);
            }
        }
        (pretty(&settings)?, lines)
    };
    let is_done = lines.is_empty();
    if !is_done {
        say_what_is_back(plan);
    }
    let action = Action::Write {
        path: file.clone(),
        contents: Contents::Bytes(bytes.into_bytes()),
        mode: 0o644,
        lines,
    };
    plan.push(action, why, is_done);
    Ok(())
}

/// Where the containerd listens that is set up.
fn listens(options: &Options) -> Result<String, Failure> {
    let said = match &options.containerd {
        Some(file) => containerd::listens(&options.read_toml(file)?.1).map(str::to_owned),
        None => None,
    };
    Ok(said.unwrap_or_else(|| USUAL_CONTAINERD.to_owned()))
}

fn read(options: &Options, file: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(options.here(file)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::host(format!("read {}", file.display()), error)),
    }
}

fn parse(file: &Path, text: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let text = text
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .unwrap_or("{}");
    serde_json::from_str(text).map_err(|error| {
        let message = format!("{} is no JSON object: {error}; mend it first", file.display());
        Failure::new(FailureKind::Usage, message)
    })
}

fn pretty(settings: &Map<String, Value>) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(settings);
    let text = text.map_err(|error| Failure::new(FailureKind::Host, error))?;
    Ok(text + "\n")
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn get<'a>(settings: &'a Map<String, Value>, key: &[String]) -> Option<&'a Value> {
    let (first, rest) = key.split_first()?;
    let value = settings.get(first)?;
    match rest {
        [] => Some(value),
        rest => get(value.as_object()?, rest),
    }
}

/// Sets a key, or takes it away; an object that is empty then goes, too. The error is the name that is no object.
fn put(settings: &mut Map<String, Value>, key: &[String], value: Option<Value>) -> Result<(), String> {
    let Some((first, rest)) = key.split_first() else {
        return Ok(());
    };
    if rest.is_empty() {
        match value {
            Some(value) => drop(settings.insert(first.clone(), value)),
            None => drop(settings.remove(first)),
        }
        return Ok(());
    }
    let inner = settings
        .entry(first.clone())
        .or_insert_with(|| Value::Object(Map::new()));
    let inner = inner.as_object_mut().ok_or_else(|| first.clone())?;
    put(inner, rest, value)?;
    if inner.is_empty() {
        settings.remove(first);
    }
    Ok(())
}
