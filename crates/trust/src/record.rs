//! `roots.json`: the facts that this host knows about one index of one layer, kept beside the cached index.
//!
//! Only facts that stay true are kept (see [`super`]), so every image and every policy may share the file. It
//! is replaced as a whole (written, synced, renamed), under a lock, so that two processes lose nothing of
//! each other. A damaged file counts as an empty one, with a warning: that costs a new proof or a look at the
//! registry, never trust. The facts' times are for people; nothing is decided by them.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;
use xebec_kernel::clock::seconds_since_1970;
use xebec_kernel::file::read_limited;
use xebec_kernel::lock::lock_file;
use xebec_kernel::writeback;

use super::roots::{Binding, Listing, Roots, Signing};
use super::scope::RepositoryName;

/// Name of the file in the folder of a cached index.
pub const RECORD_FILE: &str = "roots.json";
/// Largest `roots.json` that is read, in bytes; `MAX_FACTS` facts of each kind fit twice.
pub const MAX_RECORD: usize = 1024 * 1024;
/// Most facts of each kind that are kept; the oldest go first. A layer shared by more images than this
/// only costs the later ones another look at the registry.
const MAX_FACTS: usize = 256;
/// Version of the file's format.
const VERSION: u32 = 1;
/// Version of the method by which indexes are proven. To be raised if a defect is found in the method: older
/// proofs then no longer count.
const PROOF_METHOD: u32 = 1;

/// The known facts about one index of one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    layer: Digest,
    index: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    proven: Option<Proof>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disproved: Option<Disproof>,
    signed: Vec<Dated<Signing>>,
    bound: Vec<Dated<Binding>>,
    listed: Vec<Dated<Listing>>,
    /// Repositories whose images may be shown the layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    readers: Vec<Dated<String>>,
    /// Drawn once; it says by which pieces a repository shows that it has the layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lot: Option<u64>,
}

/// This host read the whole layer, and the index was right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proof {
    /// Seconds since 1970.
    at: u64,
    method: u32,
}

/// This host read the whole layer, and the index was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Disproof {
    /// Seconds since 1970.
    at: u64,
    why: String,
}

/// A fact, and when it was first seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dated<T> {
    /// Seconds since 1970.
    at: u64,
    fact: T,
}

/// Why a record cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}", path = path.display())]
pub struct RecordError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Record {
    /// A record of `index` of `layer` that holds no facts.
    pub fn new(layer: Digest, index: Digest) -> Self {
        Self {
            version: VERSION,
            layer,
            index,
            proven: None,
            disproved: None,
            signed: Vec::new(),
            bound: Vec::new(),
            listed: Vec::new(),
            readers: Vec::new(),
            lot: None,
        }
    }

    /// The layer and the index that this is about.
    pub fn pair(&self) -> (Digest, Digest) {
        (self.layer, self.index)
    }

    /// The roots that count for an image of `repository` that was reached over the documents in `path`: all digests
    /// from the user's name to the image manifest, both included (an image index if there is one, then the
    /// manifest).
    pub fn roots(&self, repository: &RepositoryName, path: &[Digest]) -> Roots {
        let mut roots = Roots::none();
        if self
            .proven
            .as_ref()
            .is_some_and(|proof| proof.method == PROOF_METHOD)
        {
            roots = roots.proven();
        }
        for Dated { fact, .. } in &self.signed {
            roots = roots.signed(fact.clone());
        }
        for Dated { fact, .. } in &self.bound {
            roots = roots.bound(fact, path);
        }
        for Dated { fact, .. } in &self.listed {
            roots = roots.listed(fact, repository);
        }
        match &self.disproved {
            Some(disproof) => roots.disproved(disproof.why.clone()),
            None => roots,
        }
    }

    /// Whether this host has proven the index.
    pub fn is_proven(&self) -> bool {
        self.proven
            .as_ref()
            .is_some_and(|proof| proof.method == PROOF_METHOD)
    }

    /// Why this host holds the index to be wrong, if it does.
    pub fn why_disproved(&self) -> Option<&str> {
        self.disproved.as_ref().map(|disproof| disproof.why.as_str())
    }

    /// Notes that this host read the whole layer and the index agreed. A disproof goes: the two exclude each
    /// other, and the later reading had the same bytes and perhaps a better method.
    pub fn set_proven(&mut self) {
        self.disproved = None;
        self.proven = Some(Proof {
            at: seconds_since_1970(),
            method: PROOF_METHOD,
        });
    }

    /// Notes that this host read the whole layer and the index was wrong, and how.
    pub fn set_disproved(&mut self, why: &str) {
        const MAX_WHY: usize = 1000;
        self.proven = None;
        self.disproved = Some(Disproof {
            at: seconds_since_1970(),
            why: why.chars().take(MAX_WHY).collect(),
        });
    }

    /// Notes a signature that [`verify`](super::verify) accepted, on the artifact that holds this index.
    pub fn add_signing(&mut self, signing: Signing) {
        add(&mut self.signed, signing);
    }

    /// Notes a binding of the artifact that holds this index.
    pub fn add_binding(&mut self, binding: Binding) {
        add(&mut self.bound, binding);
    }

    /// Notes that a repository listed the artifact that holds this index as a referrer of one of its images.
    pub fn add_listing(&mut self, listing: Listing) {
        add(&mut self.listed, listing);
    }

    /// Notes that images of a repository may be shown the layer: the repository has shown that it has it, or brought its index when
    /// there was nothing of it here.
    pub fn add_reader(&mut self, repository: &RepositoryName) {
        add(&mut self.readers, repository.to_string());
    }

    /// Whether images of a repository may be shown the layer; `None` if no repository is noted, as earlier versions left it.
    pub fn is_reader(&self, repository: &RepositoryName) -> Option<bool> {
        let mut readers = self.readers.iter();
        (!self.readers.is_empty()).then(|| readers.any(|known| known.fact == repository.as_str()))
    }

    /// Whether images of any repository of a registry may be.
    pub fn has_reader_at(&self, registry: &str) -> bool {
        let mut hosts = self.readers.iter().map(|known| known.fact.split('/').next());
        hosts.any(|host| host == Some(registry))
    }

    /// The lot by which pieces are chosen, drawn the first time. It stays: with a new one each time, a user with one piece would only
    /// ask until that piece is drawn.
    pub fn lot(&mut self) -> u64 {
        // The hasher's keys come from the kernel, so that some lots do not tell another one.
        *self
            .lot
            .get_or_insert_with(|| RandomState::new().hash_one(self.layer))
    }

    /// Reads the bytes of a `roots.json` that is expected to be about `index` of `layer`.
    ///
    /// # Errors
    /// The defect of the bytes, in words.
    pub fn parse(bytes: &[u8], layer: Digest, index: Digest) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if bytes.len() > MAX_RECORD {
            return Err(format!("it is larger than {MAX_RECORD} bytes"));
        }
        // First the version alone: a later format may have any fields.
        let Versioned { version } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version != VERSION {
            return Err(format!("it has version {version}, this program reads {VERSION}"));
        }
        let record: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if record.pair() != (layer, index) {
            return Err(format!(
                "it is about index {} of layer {}",
                record.index, record.layer
            ));
        }
        if record.proven.is_some() && record.disproved.is_some() {
            return Err("it says both proven and disproved".to_owned());
        }
        Ok(record)
    }

    /// Reads the record in `directory`. Never fails: what cannot be read counts as no facts, with a warning
    /// in the log.
    pub fn load(directory: &Path, layer: Digest, index: Digest) -> Self {
        Self::read(&directory.join(RECORD_FILE), layer, index).unwrap_or_else(|warning| {
            tracing::warn!(%layer, %index, "{warning}");
            Self::new(layer, index)
        })
    }

    fn read(path: &Path, layer: Digest, index: Digest) -> Result<Self, String> {
        let read = match read_limited(path, MAX_RECORD as u64) {
            Ok(bytes) => Self::parse(&bytes, layer, index),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::new(layer, index)),
            Err(error) => Err(error.to_string()),
        };
        read.map_err(|problem| {
            format!(
                "{} is not usable ({problem}); this index counts as not proven, signed, bound or listed until that is \
                 found out again",
                path.display()
            )
        })
    }

    /// Reads the record in `directory`, lets `change` add to it and writes it back, all under a lock. The
    /// change is durable when this returns. Gives the new record.
    ///
    /// # Errors
    /// The file, its lock (`roots.json.lock`) or the directory cannot be written.
    pub fn update(
        directory: &Path,
        layer: Digest,
        index: Digest,
        change: impl FnOnce(&mut Self),
    ) -> Result<Self, RecordError> {
        Self::change(directory, layer, index, change, Durability::Now)
    }

    /// The same of a directory that is new, and as durable as that: its names are synced later. Use [`Record::sync`] before.
    ///
    /// # Errors
    /// As [`Record::update`].
    pub fn begin(
        directory: &Path,
        layer: Digest,
        index: Digest,
        change: impl FnOnce(&mut Self),
    ) -> Result<Self, RecordError> {
        Self::change(directory, layer, index, change, Durability::Later)
    }

    /// Begins the write that [`Record::sync`] waits for; its wait is shorter if others are begun as well. A failure does no harm.
    pub fn begin_sync(directory: &Path) {
        let _ = File::open(directory.join(RECORD_FILE)).and_then(writeback::begin);
    }

    /// Brings what the record in `directory` holds to the disk, but not its name. None is no error.
    ///
    /// # Errors
    /// The file cannot be synced.
    pub fn sync(directory: &Path) -> Result<(), RecordError> {
        let path = directory.join(RECORD_FILE);
        match File::open(&path).and_then(|file| file.sync_data()) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(RecordError {
                action: "sync",
                path,
                source,
            }),
            _ => Ok(()),
        }
    }

    fn change(
        directory: &Path,
        layer: Digest,
        index: Digest,
        change: impl FnOnce(&mut Self),
        durability: Durability,
    ) -> Result<Self, RecordError> {
        let path = directory.join(RECORD_FILE);
        let failed = |action| {
            let path = path.clone();
            move |source| RecordError { action, path, source }
        };
        let _lock = lock_file(&beside(&path, ".lock"), 0o600).map_err(failed("lock"))?;
        let before = Self::load(directory, layer, index);
        let mut record = before.clone();
        change(&mut record);
        if record != before {
            let bytes = serde_json::to_vec_pretty(&record).map_err(|error| failed("encode")(error.into()))?;
            replace(&path, &bytes, durability).map_err(failed("write"))?;
        }
        Ok(record)
    }
}

fn add<T: PartialEq>(facts: &mut Vec<Dated<T>>, fact: T) {
    if facts.iter().any(|known| known.fact == fact) {
        return;
    }
    if facts.len() >= MAX_FACTS {
        facts.remove(0);
    }
    facts.push(Dated {
        at: seconds_since_1970(),
        fact,
    });
}

/// The path of a file whose name is that of `path` with `suffix`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// When something is on the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durability {
    Now,
    Later,
}

/// Puts `bytes` in the place of the file `path`; readers see the old file or the new one, also after power
/// loss if it is durable now.
fn replace(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    // One name suffices, for the lock is held; what a crash left behind is overwritten.
    let temporary = beside(path, ".new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    if durability == Durability::Later {
        return fs::rename(&temporary, path);
    }
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both have no facts; a user is told of one of them.
    #[test]
    fn a_record_that_cannot_be_read_is_told_and_a_missing_one_is_not() {
        let (layer, index) = (Digest::of(b"layer"), Digest::of(b"index"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(RECORD_FILE);
        let missing = Record::read(&path, layer, index);
        assert_eq!(missing, Ok(Record::new(layer, index)));
        fs::create_dir(&path).unwrap();
        let warning = Record::read(&path, layer, index).unwrap_err();
        assert!(
            warning.starts_with(&format!("{} is not usable (", path.display())),
            "{warning}"
        );
    }
}
