//! Restores a backup to an empty root directory, and reads each byte of it.

use std::fs;
use std::io;
use std::path::Path;

use xebec_kernel::file::sync_directory;

use super::backup::{OBJECTS, RECORDS, STEP, UNFINISHED, blocking, failed, link_or_copy, remove};
use crate::database::Database;
use crate::digest::{Digest, Hasher};
use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::objects::{Directory, make_directory};
use crate::records::{blobs, manifests, repositories};
use crate::store::Store;

/// What SQLite keeps beside unfinished records.
const LOGS: [&str; 2] = [".records.db.new-wal", ".records.db.new-shm"];

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Repositories.
    pub repositories: u64,
    /// Manifests.
    pub manifests: u64,
    /// Blobs.
    pub blobs: u64,
    /// The bytes of blobs and manifests, all of which were compared with their digests.
    pub bytes: u64,
}

impl Store {
    /// Restores the backup in `backup` to `root`, which must be empty, but for what a restore that was broken off has left. The records
    /// come last: until then there is no store. `report` is called now and then with what was restored so far.
    ///
    /// # Errors
    /// If a blob or manifest of the backup is missing or has wrong bytes; they are listed, and there is no store in `root` then. If a
    /// file cannot be written.
    pub async fn restore(
        root: &Path,
        backup: &Path,
        report: impl FnMut(&Restored) + Send,
    ) -> Result<Restored> {
        let records = root.join(RECORDS);
        let (target, source) = (root.to_owned(), backup.to_owned());
        blocking(move || check(&target, &source)).await?;
        let database = |source| StoreError::Database {
            doing: "read the backup's records",
            source,
        };
        let (target, copy) = (root.to_owned(), root.join(UNFINISHED));
        let (from, to) = (backup.join(RECORDS), copy.clone());
        let copied = blocking(move || {
            make_directory(&target).map_err(failed("make", &target))?;
            // A restore that was broken off may have been of another backup. SQLite would write its log into this one's records.
            for log in LOGS.map(|log| target.join(log)) {
                remove(&log).map_err(failed("remove", &log))?;
            }
            // Never opened where it is: a backup may be on a medium that cannot be written.
            fs::copy(&from, &to).map_err(failed("copy", &from))?;
            Database::open_file(&to).map_err(database)
        })
        .await?;
        let restored = restore_contents(&copied, root, backup, report).await?;
        let root = root.to_owned();
        blocking(move || {
            // Closed, they are one file again.
            drop(copied);
            let sync = || fs::File::open(&copy)?.sync_all();
            sync().map_err(failed("sync", &copy))?;
            fs::rename(&copy, &records).map_err(failed("give the records their name:", &records))?;
            sync_directory(&root).map_err(failed("sync", &root))
        })
        .await?;
        Ok(restored)
    }
}

/// Whether there is a whole backup, and room that nobody uses.
fn check(root: &Path, backup: &Path) -> Result<()> {
    let refused = |advice: String| Err(StoreError::Unsupported(advice));
    if !backup.join(RECORDS).exists() {
        return refused(match backup.join(UNFINISHED).exists() {
            true => format!(
                "the backup in {} was broken off; take it again in the same directory, which keeps what is there",
                backup.display()
            ),
            false => format!("{} has no backup: there is no {RECORDS}", backup.display()),
        });
    }
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("read", root))?,
    };
    let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let names = names.map_err(failed("read", root))?;
    let is_ours = names.iter().any(|name| name == UNFINISHED);
    let left_over = [UNFINISHED, OBJECTS].into_iter().chain(LOGS);
    let foreign = names
        .iter()
        .find(|name| *name != "lost+found" && !(is_ours && left_over.clone().any(|left| *name == left)));
    match foreign {
        None => Ok(()),
        Some(name) => refused(format!(
            "{} is not empty: it has {}; restore to an empty directory, or move what is there away",
            root.display(),
            name.display()
        )),
    }
}

async fn restore_contents(
    records: &Database,
    root: &Path,
    backup: &Path,
    mut report: impl FnMut(&Restored) + Send,
) -> Result<Restored> {
    let database = |source| StoreError::Database {
        doing: "read the backup's records",
        source,
    };
    let open = |top: &Path| Directory::open(&top.join(OBJECTS)).map_err(failed("open", top));
    let (from, to) = (open(backup)?, open(root)?);
    let mut restored = Restored {
        repositories: records.read(repositories::count).await.map_err(database)?,
        ..Restored::default()
    };
    let mut damaged = Vec::new();
    let mut after: Option<Digest> = None;
    loop {
        let start = after.take();
        let found = records
            .read(move |tx| manifests::contents(tx, 4, start.as_ref()))
            .await
            .map_err(database)?;
        for (digest, content) in &found {
            restored.manifests += 1;
            restored.bytes += content.len() as u64;
            if Digest::of(digest.algorithm(), content) != *digest {
                damaged.push(digest.clone());
            }
        }
        match found.into_iter().next_back() {
            Some((digest, _)) => after = Some(digest),
            None => break,
        }
    }
    loop {
        let start = after.take();
        let listed = records
            .read(move |tx| blobs::list(tx, STEP, start.as_ref(), u64::MAX))
            .await;
        let blobs = listed.map_err(database)?;
        after = blobs.last().map(|blob| blob.digest.clone());
        if blobs.is_empty() {
            break;
        }
        let (from, to) = (from.clone(), to.clone());
        let bad =
            blocking(move || restore_blobs(&blobs, &from, &to, &mut restored).map(|bad| (bad, restored)))
                .await?;
        damaged.extend(bad.0);
        restored = bad.1;
        report(&restored);
    }
    match damaged.is_empty() {
        true => Ok(restored),
        false => Err(StoreError::BadBackup { damaged }),
    }
}

/// Those that are missing or wrong.
fn restore_blobs(
    blobs: &[Blob],
    from: &Directory,
    to: &Directory,
    restored: &mut Restored,
) -> Result<Vec<Digest>> {
    let mut damaged = Vec::new();
    for blob in blobs {
        let place = |directory: &Directory| {
            directory
                .path(&blob.object)
                .map_err(failed("find", Path::new(&blob.object)))
        };
        let (source, target) = (place(from)?, place(to)?);
        let found = link_or_copy(&source, &target).and_then(|_| hash(&target, blob));
        match found {
            Ok(digest) if digest == blob.digest => {
                restored.blobs += 1;
                restored.bytes += blob.size;
            }
            Ok(_) => damaged.push(blob.digest.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => damaged.push(blob.digest.clone()),
            Err(error) => return Err(failed("restore", &source)(error)),
        }
    }
    Ok(damaged)
}

fn hash(path: &Path, blob: &Blob) -> io::Result<Digest> {
    let mut hasher = Hasher::new(blob.digest.algorithm());
    hasher.read(fs::File::open(path)?)?;
    Ok(hasher.finish())
}
