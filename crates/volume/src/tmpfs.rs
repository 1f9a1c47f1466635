//! Mounts of tmpfs: `--tmpfs /run:rw,size=64m,mode=1777`.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde_json::{Value, json};
use xebec_kernel::size::Bytes;

use super::error::VolumeError;

/// The default mount options; docker's.
const DEFAULT_OPTIONS: [&str; 3] = ["noexec", "nosuid", "nodev"];

/// Pairs of options that undo each other.
const SWITCHES: [(&str, &str); 5] = [
    ("exec", "noexec"),
    ("suid", "nosuid"),
    ("dev", "nodev"),
    ("rw", "ro"),
    ("atime", "noatime"),
];

/// A tmpfs that is mounted in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Its absolute path in the container.
    pub target: PathBuf,
    options: Vec<String>,
    asked: String,
}

impl FromStr for Tmpfs {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let wrong = |reason: String| VolumeError::Tmpfs {
            tmpfs: text.to_owned(),
            reason,
        };
        let (target, options) = text.split_once(':').unwrap_or((text, ""));
        Self::new(Path::new(target), options.split(',')).map_err(wrong)
    }
}

impl Tmpfs {
    /// A tmpfs with these options beside the default ones. The error is what is wrong with them.
    pub(crate) fn new<'a>(target: &Path, options: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let leads_up = target.components().any(|part| part == Component::ParentDir);
        if !target.is_absolute() || leads_up {
            return Err("its path must be absolute, without ..".into());
        }
        if target == Path::new("/") {
            return Err("the container's root cannot be replaced".into());
        }
        let mut asked = Vec::new();
        let mut merged: Vec<String> = DEFAULT_OPTIONS.iter().map(|&word| word.to_owned()).collect();
        for option in options.filter(|option| !option.is_empty()) {
            let undone = check(option)?;
            merged.retain(|known| Some(known.as_str()) != undone && known != option);
            merged.push(as_kernel_reads(option));
            asked.push(option);
        }
        Ok(Self {
            target: target.components().collect(),
            options: merged,
            asked: asked.join(","),
        })
    }
}

/// The kernel reads a whole number and one letter; users may write sizes in other ways as well.
fn as_kernel_reads(option: &str) -> String {
    let size = option.split_once('=').and_then(|(key, size)| {
        let letters = size.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_read = letters.len() <= 1 && letters != "b" && letters != "B";
        let bytes = size.parse::<Bytes>().ok().filter(|_| !is_read)?;
        Some(format!("{key}={}", bytes.0))
    });
    size.unwrap_or_else(|| option.to_owned())
}

/// The option that this one undoes, if it undoes one. Fails if there is no such option.
fn check(option: &str) -> Result<Option<&'static str>, String> {
    for (one, other) in SWITCHES {
        if option == one {
            return Ok(Some(other));
        }
        if option == other {
            return Ok(Some(one));
        }
    }
    let number = |text: &str, radix| u32::from_str_radix(text, radix).is_ok();
    let is_good = match option.split_once('=') {
        None => matches!(
            option,
            "diratime" | "nodiratime" | "relatime" | "norelatime" | "strictatime"
        ),
        Some(("size", size)) => {
            let share = size.strip_suffix('%').map(|share| number(share, 10));
            share.unwrap_or_else(|| size.parse::<Bytes>().is_ok())
        }
        Some(("mode", mode)) => number(mode, 8) && mode.len() <= 4,
        Some(("uid" | "gid", id)) => number(id, 10),
        Some(("nr_inodes" | "nr_blocks", count)) => count.parse::<Bytes>().is_ok(),
        Some(_) => false,
    };
    match is_good {
        true => Ok(None),
        false => Err(format!(
            "{option:?} is not an option of tmpfs; use size=, mode=, uid=, gid=, nr_inodes=, rw, ro, exec, noexec, suid, \
             nosuid, dev or nodev"
        )),
    }
}

impl Tmpfs {
    /// The options that were asked for, without the default ones.
    pub fn asked_options(&self) -> &str {
        &self.asked
    }

    /// In the form of the runtime's configuration.
    pub fn to_json(&self) -> Value {
        json!({ "destination": self.target, "type": "tmpfs", "source": "tmpfs", "options": self.options })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_tmpfs_has_no_programs_and_devices_by_default() {
        let options = |text: &str| {
            let tmpfs = text.parse::<Tmpfs>().map(|tmpfs| tmpfs.to_json());
            tmpfs.map(|json| json["options"].to_string().replace('"', ""))
        };
        assert_eq!(options("/run").unwrap(), "[noexec,nosuid,nodev]");
        assert_eq!(
            options("/run:exec,size=64m,mode=1770").unwrap(),
            "[nosuid,nodev,exec,size=64m,mode=1770]"
        );
        // Numbers that the kernel does not read as they are written.
        assert_eq!(
            options("/run:size=1.5MiB,nr_inodes=2kb").unwrap(),
            "[noexec,nosuid,nodev,size=1572864,nr_inodes=2048]"
        );
        assert_eq!(
            options("/run:size=10%,rw,ro").unwrap(),
            "[noexec,nosuid,nodev,size=10%,ro]"
        );
        for text in [
            "run",
            "/",
            "/a/../b",
            "/run:size=x",
            "/run:bind",
            "/run:context=x",
            "/run:mode=9",
            "/run:mode=17777",
        ] {
            assert!(options(text).is_err(), "{text}");
        }
    }
}
