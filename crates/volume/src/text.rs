//! `--volume SRC:DST[:OPTIONS]`, as docker reads it.

use std::path::Path;
use std::str::FromStr;

use super::error::VolumeError;
use super::options;
use super::paths::{host_path, is_volume_name, target};
use super::request::{Source, Volume};

const SHAPE: &str = "write it as SRC:DST[:OPTIONS], NAME:DST[:OPTIONS], or DST for an anonymous volume";

/// Relative to this process's working directory.
impl FromStr for Volume {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let directory = std::env::current_dir();
        let directory = directory.map_err(VolumeError::file("find", Path::new(".")))?;
        Self::read(text, &directory)
    }
}

impl Volume {
    /// Reads a `--volume`. A source that begins with `.` is relative to `directory`.
    ///
    /// # Errors
    /// [`VolumeError::Text`], with the defect in words.
    pub fn read(text: &str, directory: &Path) -> Result<Self, VolumeError> {
        read(text, directory).map_err(|reason| VolumeError::Text {
            volume: text.to_owned(),
            reason,
        })
    }
}

fn read(text: &str, directory: &Path) -> Result<Volume, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let mut volume = match parts[..] {
        [place] => Volume::new(Source::Anonymous, target(place)?),
        [place, options] if !options.starts_with('/') && place.starts_with('/') && is_options(options) => {
            return Err("an anonymous volume has no options; name it, or use --mount".to_owned());
        }
        [source, place] | [source, place, _] => Volume::new(self::source(source, directory)?, target(place)?),
        _ => {
            return Err(format!(
                "a path cannot hold a colon here; use --mount, or {SHAPE}"
            ));
        }
    };
    if let [_, _, options] = parts[..] {
        options::apply(&mut volume, options)?;
    }
    Ok(volume)
}

fn is_options(text: &str) -> bool {
    let mut any = Volume::new(Source::Anonymous, "/x".into());
    options::apply(&mut any, text).is_ok()
}

fn source(text: &str, directory: &Path) -> Result<Source, String> {
    if text.starts_with(['/', '.']) {
        let path = host_path(text, directory);
        return Ok(Source::Host { path, create: true });
    }
    if is_volume_name(text) {
        return Ok(Source::Named(text.to_owned()));
    }
    Err(match text {
        "" => format!("the source is empty; {SHAPE}"),
        _ if text.starts_with('~') => {
            "the shell resolves ~ only at the beginning of a word; write \"$HOME\"".to_owned()
        }
        _ if text.contains('/') => {
            format!(
                "the source is a path or the name of a volume; for a directory below this one write ./{text}"
            )
        }
        _ => VolumeError::Name(text.to_owned()).to_string(),
    })
}
