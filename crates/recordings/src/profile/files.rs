//! The files of an image's profiles: their names, and how many there may be.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use xebec_format::digest::Digest;
use xebec_format::runtime_image::ServiceKey;
use xebec_protocol::failure::Failure;

/// Profiles of one service that are kept. A dozen show what starts have in common; more would only make them older.
pub(super) const MAX_OF_SERVICE: usize = 16;
/// Profiles of one image that are kept, of all its services. An image that is started with other arguments each time has
/// as many services as starts.
pub(super) const MAX_OF_IMAGE: usize = 128;
/// Most bytes that the profiles of one image may take.
const MAX_TOTAL: u64 = 16 << 20;
/// The name of a profile's file: `TIME-SERVICE-CONTENTS.json`. In the order of names the oldest comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    started: u64,
    service: String,
    contents: String,
}

impl Name {
    pub(super) fn new(started: u64, service: &ServiceKey, bytes: &[u8]) -> Result<Self, Failure> {
        let key = serde_json::to_vec(&(&service.argv, &service.env));
        let key = key.map_err(|error| Failure::host("encode a profile", error))?;
        Ok(Self {
            started,
            service: Digest::of(&key).short(),
            contents: Digest::of(bytes).short(),
        })
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".json")?.splitn(3, '-');
        let (started, service, contents) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parsed = Self {
            started: started.parse().ok()?,
            service: Some(service).filter(is_hex)?.to_owned(),
            contents: Some(contents).filter(is_hex)?.to_owned(),
        };
        // As it is written, so that two names are never one.
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}.json", self.started, self.service, self.contents)
    }
}

/// The profiles in a folder with their sizes in bytes, newest first.
pub(super) fn files(folder: &Path) -> Vec<(Name, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = Name::parse(entry.file_name().to_str()?)?;
        let metadata = entry.metadata().ok()?;
        metadata.is_file().then_some((name, metadata.len()))
    });
    let mut files: Vec<_> = named.collect();
    files.sort_by(|one, other| other.cmp(one));
    files
}

/// Removes an image's profiles beyond the limits. Files that cannot be removed are tried again next time.
pub(super) fn remove_oldest(folder: &Path) {
    let mut of_service: HashMap<String, usize> = HashMap::new();
    let (mut count, mut total) = (0, 0);
    for (name, size) in files(folder) {
        let same = of_service.entry(name.service.clone()).or_default();
        let goes = *same >= MAX_OF_SERVICE || count >= MAX_OF_IMAGE || total + size > MAX_TOTAL;
        if goes {
            let _ = fs::remove_file(folder.join(name.to_string()));
            continue;
        }
        *same += 1;
        count += 1;
        total += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_have_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let size = MAX_TOTAL / 4 + 1;
        for started in 1..=5 {
            let file = fs::File::create(folder.join(format!("{started}-{started}-0.json"))).unwrap();
            file.set_len(size).unwrap();
        }
        fs::write(folder.join("another"), b"").unwrap();
        remove_oldest(folder);
        let left: Vec<u64> = files(folder).into_iter().map(|(name, _)| name.started).collect();
        assert_eq!(left, [5, 4, 3]);
        assert!(folder.join("another").exists());
    }
}
