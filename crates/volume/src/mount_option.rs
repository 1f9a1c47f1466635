//! `--mount type=…,source=…,target=…`, as docker reads it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::csv::fields;
use super::error::VolumeError;
use super::paths::{host_path, is_volume_name, target};
use super::request::{Propagation, Source, Submounts, Volume};
use super::tmpfs::Tmpfs;

/// A `--mount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mount {
    /// A directory or file of the host, or a volume.
    Volume(Volume),
    /// A file system in memory.
    Tmpfs(Tmpfs),
}

/// Relative to this process's working directory.
impl FromStr for Mount {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let directory = std::env::current_dir();
        let directory = directory.map_err(VolumeError::file("find", Path::new(".")))?;
        Self::read(text, &directory)
    }
}

/// The key and what is wrong with it.
type Wrong = (String, String);

/// The fields of each kind of mount.
#[derive(Default)]
struct Keys {
    kind: Option<String>,
    source: Option<String>,
    target: Option<PathBuf>,
    read_only: bool,
    propagation: Option<Propagation>,
    submounts: Option<Submounts>,
    create: bool,
    no_copy: bool,
    labels: Vec<(String, String)>,
    /// Options of a tmpfs.
    memory: Vec<String>,
    /// Keys that belong to one type, with that type.
    of_type: Vec<(String, &'static str)>,
}

impl Mount {
    /// Reads a `--mount`. A source of a bind mount that begins with `.` is relative to `directory`.
    ///
    /// # Errors
    /// The key that is wrong.
    pub fn read(text: &str, directory: &Path) -> Result<Self, VolumeError> {
        read(text, directory).map_err(|(key, reason)| VolumeError::Mount {
            mount: text.to_owned(),
            key,
            reason,
        })
    }
}

fn read(text: &str, directory: &Path) -> Result<Mount, Wrong> {
    let fields = fields(text).map_err(|reason| ("quotes".to_owned(), reason.to_owned()))?;
    let mut keys = Keys::default();
    for field in fields {
        let (key, value) = match field.split_once('=') {
            Some((key, value)) => (key.trim().to_ascii_lowercase(), Some(value)),
            None => (field.trim().to_ascii_lowercase(), None),
        };
        set(&mut keys, &key, value).map_err(|reason| (key, reason))?;
    }
    compose(keys, directory)
}

/// Sets one key. The error is what is wrong with its value.
fn set(keys: &mut Keys, key: &str, value: Option<&str>) -> Result<(), String> {
    let text = || {
        let value = value.filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("it needs a value; write {key}=…"))
    };
    let own = |keys: &mut Keys, kind| keys.of_type.push((key.to_owned(), kind));
    match key {
        "type" => keys.kind = Some(text()?.to_ascii_lowercase()),
        "source" | "src" => keys.source = Some(text()?.to_owned()),
        "target" | "dst" | "destination" => keys.target = Some(target(text()?)?),
        "readonly" | "ro" => keys.read_only = is_true(value)?,
        "consistency" => drop(text()?),
        "bind-propagation" => {
            let name = text()?;
            let known = Propagation::ALL.into_iter().find(|one| one.name() == name);
            let known = known.ok_or("use rprivate, private, rslave, slave, rshared or shared");
            keys.propagation = Some(known?);
            own(keys, "bind");
        }
        "bind-nonrecursive" => {
            keys.submounts = is_true(value)?.then_some(Submounts::Hidden);
            own(keys, "bind");
        }
        "bind-recursive" => {
            keys.submounts = Some(match text()? {
                "enabled" | "readonly" => Submounts::Follow,
                "writable" => Submounts::Writable,
                "disabled" => Submounts::Hidden,
                _ => return Err("use enabled, readonly, writable or disabled".to_owned()),
            });
            own(keys, "bind");
        }
        "bind-create-src" => {
            keys.create = is_true(value)?;
            own(keys, "bind");
        }
        "volume-nocopy" => {
            keys.no_copy = is_true(value)?;
            own(keys, "volume");
        }
        "volume-label" => {
            let (name, value) = text()?.split_once('=').unwrap_or((text()?, ""));
            keys.labels.push((name.to_owned(), value.to_owned()));
            own(keys, "volume");
        }
        "volume-driver" if matches!(value, None | Some("" | "local")) => {}
        "tmpfs-size" => {
            keys.memory.push(format!("size={}", text()?));
            own(keys, "tmpfs");
        }
        "tmpfs-mode" => {
            keys.memory.push(format!("mode={}", text()?));
            own(keys, "tmpfs");
        }
        _ => return Err(unknown(key).to_owned()),
    }
    Ok(())
}

fn unknown(key: &str) -> &'static str {
    match key {
        "" => "a field is empty; write KEY=VALUE,…",
        "volume-driver" => "there is one driver, local; mount the file system on the host, and use type=bind",
        "volume-opt" => "volumes have no options; mount the file system on the host, and use type=bind",
        "volume-subpath" => "a volume is shown as a whole; use another volume for that directory",
        "tmpfs-options" => "use --tmpfs DIR:OPTIONS",
        _ => {
            "there is no such key; use type, source, target, readonly, bind-propagation, bind-recursive, bind-create-src, \
             volume-nocopy, volume-label, tmpfs-size or tmpfs-mode"
        }
    }
}

/// As Go's `strconv.ParseBool` reads it; a key alone is true.
fn is_true(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(_) => Err("it is true or false".to_owned()),
    }
}

fn compose(keys: Keys, directory: &Path) -> Result<Mount, Wrong> {
    let wrong = |key: &str, reason: &str| (key.to_owned(), reason.to_owned());
    let kind = keys.kind.as_deref().unwrap_or("volume");
    if let Some((key, other)) = keys.of_type.iter().find(|(_, other)| *other != kind) {
        return Err((key.clone(), format!("it is for type={other}")));
    }
    let place = keys.target.ok_or_else(|| wrong("target", "it is missing"))?;
    let source = match (kind, keys.source) {
        ("bind", None) => return Err(wrong("source", "a bind mount needs it")),
        ("bind", Some(source)) if source.starts_with(['/', '.']) => Source::Host {
            path: host_path(&source, directory),
            create: keys.create,
        },
        ("bind", Some(_)) => {
            return Err(wrong(
                "source",
                "write an absolute path, or one that begins with ./",
            ));
        }
        ("volume", None) => Source::Anonymous,
        ("volume", Some(name)) if is_volume_name(&name) => Source::Named(name),
        ("volume", Some(name)) if name.contains('/') => {
            return Err(wrong(
                "source",
                "it is a path, and no name of a volume; add type=bind",
            ));
        }
        ("volume", Some(name)) => return Err(("source".to_owned(), VolumeError::Name(name).to_string())),
        ("tmpfs", Some(_)) => return Err(wrong("source", "a tmpfs has none")),
        ("tmpfs", None) => return tmpfs(&place, keys.memory, keys.read_only),
        ("image", _) => {
            return Err(wrong(
                "type",
                "use `xebec mount IMAGE DIR`, and type=bind,source=DIR,readonly",
            ));
        }
        _ => return Err(wrong("type", "use bind, volume or tmpfs")),
    };
    Ok(Mount::Volume(Volume {
        read_only: keys.read_only,
        submounts: keys.submounts.unwrap_or_default(),
        propagation: keys.propagation.unwrap_or_default(),
        copies: !keys.no_copy,
        labels: keys.labels,
        ..Volume::new(source, place)
    }))
}

fn tmpfs(place: &Path, mut options: Vec<String>, read_only: bool) -> Result<Mount, Wrong> {
    if read_only {
        options.push("ro".to_owned());
    }
    let tmpfs = Tmpfs::new(place, options.iter().map(String::as_str));
    tmpfs
        .map(Mount::Tmpfs)
        .map_err(|reason| ("tmpfs".to_owned(), reason))
}
