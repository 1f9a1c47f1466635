//! The images that were committed on this host: an OCI layout, `<root>/committed`, of their new layers, configurations and manifests.
//! The layers of their bases are not in it; the registries that the bases are from have those.
//!
//! `index.json` lists the images, and names one that has a name; it appears whole, and what it lists is on the disk before it. A layer is
//! written to a file without a name, which the kernel removes with the process that writes it. What a process leaves that was killed after
//! that is a blob that nothing lists. The next change removes it. Changes hold the lock of the directory.
//!
//! Nothing else removes anything here: no eviction, no collection, no other command.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use xebec_format::digest::{Digest, Digester};
use xebec_kernel::file::{read_limited, remove_abandoned, sync_directory, write_privately};
use xebec_kernel::lock::lock_file;

use crate::blob::Layer;
use crate::error::CommitError;
use crate::image::{MANIFEST, NewImage};
use crate::uploads::KeptUploads;

/// Most images that are kept, so that their list stays small.
const MOST_IMAGES: usize = 4096;
/// Largest `index.json` that is read: so many images with the longest names.
const MOST_BYTES: u64 = 16 << 20;
/// Largest manifest or configuration that is read, as from registries.
const MOST_OF_DOCUMENT: u64 = 8 << 20;
/// Fewest digits of a digest by which an image can be named, as for other images.
const SHORTEST: usize = 6;

/// How much of a blob is read at once, in bytes.
const PART: usize = 128 << 10;

const INDEX: &str = "index.json";
const LAYOUT: &str = "oci-layout";
const LOCK: &str = "lock";
const NAME: &str = "org.opencontainers.image.ref.name";
const CREATED: &str = "org.opencontainers.image.created";
const BASE: &str = "dev.xebec.base";
const LAYER: &str = "dev.xebec.layer";
const PUSHED: &str = "dev.xebec.pushed";

/// The images that were committed on this host.
#[derive(Clone, Debug)]
pub struct CommittedImages {
    directory: PathBuf,
}

/// An image that was committed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its name, in full. It has none any more once another image was committed by that name.
    pub reference: Option<String>,
    /// The digest of its manifest.
    pub manifest: Digest,
    /// How its base is named: `registry/repository@sha256:…`.
    pub base: String,
    /// When it was committed, as RFC 3339 has it.
    pub created: String,
    /// The new layer and its size in bytes; `None` if the container had changed nothing.
    pub layer: Option<(Digest, u64)>,
    /// The name by which it was pushed last.
    pub pushed: Option<String>,
}

/// What a removal did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The image.
    pub image: Committed,
    /// How many bytes are free again.
    pub freed: u64,
}

/// A layer that is being written. It goes with this, unless it is kept.
#[derive(Debug)]
pub struct Staged {
    file: File,
    directory: PathBuf,
}

impl Staged {
    /// The file to write the layer to.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl CommittedImages {
    /// Those in `directory`, which need not exist.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where uploads of their layers go on.
    pub fn uploads(&self) -> KeptUploads {
        KeptUploads::new(self.directory.join("uploads"))
    }

    /// The file of a blob.
    pub fn blob(&self, digest: Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    fn blobs(&self) -> PathBuf {
        self.directory.join("blobs/sha256")
    }

    /// Begins a layer: a file without a name.
    ///
    /// # Errors
    /// I/O errors.
    pub fn stage(&self) -> Result<Staged, CommitError> {
        let blobs = self.blobs();
        let mut make = fs::DirBuilder::new();
        make.recursive(true).mode(0o700);
        make.create(&blobs).map_err(CommitError::file("create", &blobs))?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(CWD, &blobs, flags, Mode::RUSR | Mode::WUSR)
            .map_err(CommitError::file("make a file in", &blobs))?;
        Ok(Staged {
            file: File::from(file),
            directory: blobs,
        })
    }

    /// Keeps an image by a name, its full reference. An image that had the name keeps on being there without it.
    ///
    /// # Errors
    /// I/O errors; a list that cannot be read, or is full. The images are then as before.
    pub fn keep(
        &self,
        staged: Staged,
        layer: &Layer,
        image: &NewImage,
        reference: &str,
        created: &str,
    ) -> Result<Committed, CommitError> {
        let _lock = self.lock()?;
        let mut images = self.list()?;
        let committed = Committed {
            reference: Some(reference.to_owned()),
            manifest: Digest::of(&image.manifest),
            base: image.base.clone(),
            created: created.to_owned(),
            layer: image.layer.map(|digest| (digest, layer.size)),
            pushed: None,
        };
        take_name(&mut images, reference);
        images.retain(|other| other.manifest != committed.manifest || other.reference.is_some());
        if images.len() >= MOST_IMAGES {
            return Err(CommitError::TooManyImages(images.len()));
        }
        if let Some(digest) = image.layer {
            staged.name(&self.blob(digest))?;
        }
        for document in [&image.config, &image.manifest] {
            let path = self.blob(Digest::of(document));
            write_privately(&path, document).map_err(CommitError::file("write", &path))?;
        }
        images.push(committed.clone());
        self.write(&images)?;
        self.tidy(&images);
        Ok(committed)
    }

    /// The images, the oldest first.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn list(&self) -> Result<Vec<Committed>, CommitError> {
        let path = self.directory.join(INDEX);
        let bytes = match read_limited(&path, MOST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes.map_err(CommitError::file("read", &path))?,
        };
        let damaged = |problem: &str| CommitError::List {
            path: path.clone(),
            problem: problem.to_owned(),
        };
        let index: Value = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        let manifests = index.get("manifests").and_then(Value::as_array);
        let manifests = manifests.ok_or_else(|| damaged("it lists no manifests"))?;
        let read = |entry: &Value| from_entry(entry).ok_or_else(|| damaged("an image in it cannot be read"));
        manifests.iter().map(read).collect()
    }

    /// The image of that name: a full reference, the digest of a manifest, or its first digits. `None` if there is none, and if several
    /// begin with these digits.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<Committed>, CommitError> {
        Ok(find_in(&self.list()?, name).cloned())
    }

    /// Whether the image of that name may be one of these although their list cannot be read: the name stands in what is left of it, or a
    /// manifest or another blob has the name. If nothing is left of the list, or its file cannot be read, any may be.
    pub fn may_have(&self, name: &str) -> bool {
        let has_blobs = || fs::read_dir(self.blobs()).is_ok_and(|mut blobs| blobs.next().is_some());
        let bytes = match read_limited(&self.directory.join(INDEX), MOST_BYTES) {
            Ok(bytes) if bytes.is_empty() && has_blobs() => return true,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            Err(_) => return true,
        };
        let quoted = Value::from(name).to_string();
        let is_in_it = bytes
            .windows(quoted.len())
            .any(|window| window == quoted.as_bytes());
        let digits = name.strip_prefix("sha256:").unwrap_or(name).to_ascii_lowercase();
        let is_digits = digits.len() >= SHORTEST && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut blobs = fs::read_dir(self.blobs()).into_iter().flatten().flatten();
        is_in_it || (is_digits && blobs.any(|blob| blob.file_name().to_string_lossy().starts_with(&digits)))
    }

    /// The documents of an image: manifest and configuration.
    ///
    /// # Errors
    /// I/O errors; documents that are not what their digests say.
    pub fn documents(&self, image: &Committed) -> Result<(Vec<u8>, Vec<u8>), CommitError> {
        let manifest = self.document(image.manifest)?;
        let path = self.blob(image.manifest);
        let config = config_of(&manifest).ok_or_else(|| CommitError::Damaged {
            path,
            problem: "it names no configuration".to_owned(),
        })?;
        let config = self.document(config)?;
        Ok((manifest, config))
    }

    fn document(&self, digest: Digest) -> Result<Vec<u8>, CommitError> {
        let path = self.blob(digest);
        let bytes = read_limited(&path, MOST_OF_DOCUMENT).map_err(CommitError::file("read", &path))?;
        match Digest::of(&bytes) == digest {
            true => Ok(bytes),
            false => Err(CommitError::Damaged {
                path,
                problem: "it is not what its name says".to_owned(),
            }),
        }
    }

    /// Notes by which name an image was pushed. That it was pushed by its own name is noted for good: from then on the name means what the
    /// registry says.
    ///
    /// # Errors
    /// I/O errors.
    pub fn note_pushed(&self, manifest: Digest, target: &str) -> Result<(), CommitError> {
        let _lock = self.lock()?;
        let mut images = self.list()?;
        for image in images.iter_mut().filter(|image| image.manifest == manifest) {
            if image.reference.is_none() || image.pushed != image.reference {
                image.pushed = Some(target.to_owned());
            }
        }
        self.write(&images)
    }

    /// Removes an image: by a name that name, and the image if it has no other; by digest, all names. `None` if there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove(&self, name: &str) -> Result<Option<Removed>, CommitError> {
        // Without any there may be no directory to lock.
        if self.find(name)?.is_none() {
            return Ok(None);
        }
        let _lock = self.lock()?;
        let mut images = self.list()?;
        // Another process may have moved the name since.
        let Some(image) = find_in(&images, name).cloned() else {
            return Ok(None);
        };
        let is_named = image.reference.as_deref() == Some(name);
        images.retain(|other| {
            other.manifest != image.manifest || (is_named && other.reference != image.reference)
        });
        self.write(&images)?;
        let freed = self.tidy(&images);
        Ok(Some(Removed { image, freed }))
    }

    fn lock(&self) -> Result<File, CommitError> {
        let path = self.directory.join(LOCK);
        lock_file(&path, 0o600).map_err(CommitError::file("lock", &path))
    }

    fn write(&self, images: &[Committed]) -> Result<(), CommitError> {
        let layout = self.directory.join(LAYOUT);
        if !layout.exists() {
            let text = json!({ "imageLayoutVersion": "1.0.0" }).to_string();
            write_privately(&layout, text.as_bytes()).map_err(CommitError::file("write", &layout))?;
        }
        let sizes = images.iter().map(|image| {
            let size = fs::metadata(self.blob(image.manifest)).map_or(0, |found| found.len());
            entry_of(image, size)
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": sizes.collect::<Vec<_>>(),
        });
        let path = self.directory.join(INDEX);
        write_privately(&path, index.to_string().as_bytes()).map_err(CommitError::file("write", &path))
    }

    /// Removes blobs that no image has, such as those of a process that was killed. Gives how many bytes that were. The lock is held.
    ///
    /// An image has all layers of its manifest: the layer of another committed image is in no registry if that one was its base.
    fn tidy(&self, images: &[Committed]) -> u64 {
        let mut needed = BTreeSet::new();
        for image in images {
            // Of an image whose manifest cannot be read nothing is known: then all stays.
            let manifest = self.document(image.manifest).ok();
            let Some(blobs) = manifest.and_then(|manifest| blobs_of(&manifest)) else {
                return 0;
            };
            let own = [image.manifest].into_iter();
            let own = own.chain(image.layer.map(|(digest, _)| digest));
            needed.extend(own.chain(blobs).map(|digest| digest.hex()));
        }
        remove_abandoned(&self.directory, 2);
        self.uploads().tidy(&|name| needed.contains(name));
        let mut freed = 0;
        for entry in fs::read_dir(self.blobs()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_blob = |name: &str| format!("sha256:{name}").parse::<Digest>().is_ok();
            if name
                .to_str()
                .is_some_and(|name| is_blob(name) && !needed.contains(name))
            {
                let size = entry.metadata().map_or(0, |found| found.len());
                if fs::remove_file(entry.path()).is_ok() {
                    freed += size;
                }
            }
        }
        freed
    }
}

impl Staged {
    /// Brings the layer to the disk and gives it its name. One that is there is the same, unless its disk damaged it: then it is replaced.
    fn name(mut self, path: &Path) -> Result<(), CommitError> {
        let synced = self.file.flush().and_then(|()| self.file.rewind());
        synced
            .and_then(|()| self.file.sync_data())
            .map_err(CommitError::Write)?;
        // A file without a name gets one by the link to its descriptor (`open(2)`, `O_TMPFILE`).
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let name = |path: &Path| linkat(CWD, &link, CWD, path, AtFlags::SYMLINK_FOLLOW);
        match name(path) {
            Err(Errno::EXIST) if !is_whole(path) => {
                // What this name says is removed after a kill, as other temporary files are.
                let hex = path.file_name().unwrap_or_default().display().to_string();
                let beside = path.with_file_name(format!(".{hex}.{}.0", std::process::id()));
                let _ = fs::remove_file(&beside);
                name(&beside).map_err(CommitError::file("name", &beside))?;
                fs::rename(&beside, path).map_err(CommitError::file("replace", path))?;
            }
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(CommitError::file("name", path)(error)),
        }
        sync_directory(&self.directory).map_err(CommitError::file("sync", &self.directory))
    }
}

/// Whether a blob is what its name says.
fn is_whole(path: &Path) -> bool {
    let mut digester = Digester::new();
    let mut part = vec![0; PART];
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    loop {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(length) => digester.update(part.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    let name = path.file_name().and_then(|name| name.to_str());
    name == Some(digester.finish().hex().as_str())
}

/// Takes a name from the image that has it.
fn take_name(images: &mut [Committed], reference: &str) {
    for image in images
        .iter_mut()
        .filter(|image| image.reference.as_deref() == Some(reference))
    {
        image.reference = None;
    }
}

fn find_in<'a>(images: &'a [Committed], name: &str) -> Option<&'a Committed> {
    let by_name = images
        .iter()
        .find(|image| image.reference.as_deref() == Some(name));
    by_name.or_else(|| by_digits(images, name))
}

/// The only image whose digest begins so.
fn by_digits<'a>(images: &'a [Committed], name: &str) -> Option<&'a Committed> {
    let digits = name.strip_prefix("sha256:").unwrap_or(name);
    if digits.len() < SHORTEST {
        return None;
    }
    let begins = |image: &&Committed| image.manifest.hex().starts_with(&digits.to_ascii_lowercase());
    let first = images.iter().find(begins)?;
    let is_only = images
        .iter()
        .filter(begins)
        .all(|other| other.manifest == first.manifest);
    is_only.then_some(first)
}

fn config_of(manifest: &[u8]) -> Option<Digest> {
    let manifest: Value = serde_json::from_slice(manifest).ok()?;
    manifest.get("config")?.get("digest")?.as_str()?.parse().ok()
}

/// The configuration and the layers of a manifest; `None` if not all of them can be read.
fn blobs_of(manifest: &[u8]) -> Option<Vec<Digest>> {
    let read: Value = serde_json::from_slice(manifest).ok()?;
    let layers = read.get("layers")?.as_array()?.iter();
    let layers = layers.map(|layer| layer.get("digest")?.as_str()?.parse().ok());
    [config_of(manifest)].into_iter().chain(layers).collect()
}

/// The descriptor of an image in `index.json`.
fn entry_of(image: &Committed, size: u64) -> Value {
    let mut annotations = Map::new();
    let mut note = |key: &str, value: Option<String>| {
        annotations.extend(value.map(|value| (key.to_owned(), json!(value))));
    };
    note(NAME, image.reference.clone());
    note(BASE, Some(image.base.clone()));
    note(CREATED, Some(image.created.clone()));
    note(
        LAYER,
        image.layer.map(|(digest, size)| format!("{size} {digest}")),
    );
    note(PUSHED, image.pushed.clone());
    json!({ "mediaType": MANIFEST, "digest": image.manifest, "size": size, "annotations": annotations })
}

fn from_entry(entry: &Value) -> Option<Committed> {
    let annotation = |key: &str| {
        let value = entry.get("annotations")?.get(key)?.as_str()?;
        Some(value.to_owned())
    };
    let layer = match annotation(LAYER) {
        Some(text) => {
            let (size, digest) = text.split_once(' ')?;
            Some((digest.parse().ok()?, size.parse().ok()?))
        }
        None => None,
    };
    Some(Committed {
        reference: annotation(NAME),
        manifest: entry.get("digest")?.as_str()?.parse().ok()?,
        base: annotation(BASE)?,
        created: annotation(CREATED)?,
        layer,
        pushed: annotation(PUSHED),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests;
