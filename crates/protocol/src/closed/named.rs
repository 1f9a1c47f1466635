//! Files that a user keeps in the root directory because Xebec's configuration names them: keys, certificates.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use serde::Deserialize;
use xebec_trust::{MAX_TRUST_FILE, TrustFile};

/// The part of `registries.toml` that names files; what else is wrong with it is said by those who read it whole.
#[derive(Deserialize)]
struct Registries {
    #[serde(default)]
    ca_files: Vec<String>,
}

/// The names in a directory by which the files begin that its `trust.toml` and its `registries.toml` name. None, where such a
/// file is somebody else's or cannot be read: nothing is believed of it then.
pub(super) fn names(directory: &OwnedFd, path: &Path) -> BTreeSet<String> {
    let keys = read(directory, "trust.toml").and_then(|text| TrustFile::parse(&text).ok());
    let keys = keys.into_iter().flat_map(|file| file.keys).map(|key| key.file);
    let registries = read(directory, "registries.toml").and_then(|text| String::from_utf8(text).ok());
    let registries = registries.and_then(|text| toml::from_str::<Registries>(&text).ok());
    let certificates = registries.into_iter().flat_map(|file| file.ca_files);
    keys.chain(certificates)
        .filter_map(|file| first_part(path, &file))
        .collect()
}

/// The first part of a file's path below a directory.
fn first_part(directory: &Path, file: &str) -> Option<String> {
    let file = Path::new(file);
    let below = match file.is_absolute() {
        true => file.strip_prefix(directory).ok()?,
        false => file,
    };
    let first = below
        .components()
        .find(|part| !matches!(part, Component::CurDir))?;
    match first {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    }
}

fn read(directory: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    // A FIFO would be waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory.as_fd(), name, flags, Mode::empty()).ok()?;
    let status = fstat(&file).ok()?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    if !is_file || status.st_uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut text = Vec::new();
    let limit = MAX_TRUST_FILE as u64 + 1;
    File::from(file).take(limit).read_to_end(&mut text).ok()?;
    (text.len() <= MAX_TRUST_FILE).then_some(text)
}
