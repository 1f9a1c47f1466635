//! Restores a backup to an empty root directory, and reads each byte of it.
//!
//! Of a backup that is damaged nothing is restored, unless the caller wants the rest. Then each damaged blob has the mark that a
//! [scrub](super::scrub) sets: it counts as absent, a scrub names it, a push or an upstream mends it, and a collection takes it when
//! nothing refers to it. A blob that is not intact is damaged if its recipe is, or a pack that this needs. Manifests that name it stay: without them their tags would be lost, and what is sound in the images
//! would be collected. A manifest with wrong bytes stays for the same reason, as it does after a scrub.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use xebec_kernel::file::sync_directory;
use xebec_kernel::owner::copy_new;

use super::backup::{INCOMPLETE, OBJECTS, RECORDS, STEP, UNFINISHED};
use super::backup_copying::{blocking, failed};
use crate::database::{Database, DatabaseError, Transaction};
use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::name::{RepositoryName, Tag};
use crate::records::{blobs, manifests, packs, recipes, repositories, tags};
use crate::schema::MIGRATIONS;
use crate::store::{Store, now};
use xebec_objects::files::{copy, hash, remove};
use xebec_objects::{Digest, Directory, make_directory};

/// The files that SQLite keeps beside unfinished records.
const LOGS: [&str; 2] = [".records.db.new-wal", ".records.db.new-shm"];

/// The numbers of things that were restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Repositories.
    pub repositories: u64,
    /// Manifests.
    pub manifests: u64,
    /// Blobs.
    pub blobs: u64,
    /// Packs and recipes, of which some of these blobs are made.
    pub pieces: u64,
    /// The bytes of the objects of these blobs, packs and recipes, and of the manifests. All were compared with their digests.
    pub bytes: u64,
}

impl Restored {
    fn count_piece(&mut self, size: u64, is_sound: bool) {
        self.pieces += u64::from(is_sound);
        self.bytes += size * u64::from(is_sound);
    }
}

/// So many manifests are listed that name what was left out, and so many tags of each.
const NAMED: usize = 64;

/// A blob or manifest that a restore left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The digest of the blob or manifest.
    pub digest: Digest,
    /// Why it cannot be restored.
    pub damage: Damage,
    /// The manifests that name it, 64 at most. Of a manifest: itself in each repository that has it, then the indexes that list it.
    pub named_by: Vec<NamedBy>,
}

/// Why a blob or manifest of a backup cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The blob has no object.
    Missing,
    /// The blob's object has other bytes than the digest says.
    WrongBytes,
    /// The disk cannot read the blob's object; why.
    Unreadable(String),
    /// The blob's recipe, or a pack that it needs, is missing or has other bytes than its record says.
    Recipe,
    /// The manifest's bytes in the records are not those that the digest says.
    Manifest,
}

/// A manifest that names what was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedBy {
    /// Where it is.
    pub repository: RepositoryName,
    /// Its digest.
    pub manifest: Digest,
    /// The tags that name it, 64 at most.
    pub tags: Vec<Tag>,
}

/// A damaged blob or manifest, as the rest of this module finds it, and the blob's record.
type Found = (Digest, Damage, Option<Blob>);

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
        let (restored, _) = restore_to(root, backup, Damaged::EndsIt, report).await?;
        Ok(restored)
    }

    /// The same of a backup that is damaged: what is sound is restored, and the rest is listed. A blob without right bytes counts as
    /// absent, as after a scrub.
    ///
    /// # Errors
    /// If a file cannot be written, or cannot be read for another reason than a broken disk.
    pub async fn restore_without_damaged(
        root: &Path,
        backup: &Path,
        report: impl FnMut(&Restored) + Send,
    ) -> Result<(Restored, Vec<LeftOut>)> {
        restore_to(root, backup, Damaged::IsLeftOut, report).await
    }

    /// How many blobs, packs and recipes a backup says itself that it lacks, since no place gave them when it was taken; 0 if it is complete.
    ///
    /// # Errors
    /// If its list cannot be read.
    pub fn lacking_in_backup(backup: &Path) -> Result<u64> {
        let list = backup.join(INCOMPLETE);
        let lines = match fs::File::open(&list) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => BufReader::new(opened.map_err(failed("read", &list))?).lines(),
        };
        let counted = lines.map(|line| line.map(|_| 1)).sum::<io::Result<u64>>();
        counted.map_err(failed("read", &list))
    }
}

/// How a restore treats damage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damaged {
    EndsIt,
    IsLeftOut,
}

async fn restore_to(
    root: &Path,
    backup: &Path,
    damaged: Damaged,
    report: impl FnMut(&Restored) + Send,
) -> Result<(Restored, Vec<LeftOut>)> {
    let records = root.join(RECORDS);
    let (target, source) = (root.to_owned(), backup.to_owned());
    blocking(move || check(&target, &source)).await?;
    let (target, copy) = (root.to_owned(), root.join(UNFINISHED));
    let (from, to) = (backup.join(RECORDS), copy.clone());
    let copied = blocking(move || {
        make_directory(&target).map_err(failed("make", &target))?;
        // A restore that was broken off may have been of another backup. SQLite would write its log into this one's records.
        for log in LOGS.map(|log| target.join(log)) {
            remove(&log).map_err(failed("remove", &log))?;
        }
        // Never opened where it is: a backup may be on a medium that cannot be written.
        remove(&to).map_err(failed("remove", &to))?;
        copy_new(&from, &to).map_err(failed("copy", &from))?;
        Database::open_file(&to, MIGRATIONS).map_err(database)
    })
    .await?;
    let (restored, found) = restore_contents(&copied, root, backup, damaged, report).await?;
    let left_out = leave_out(&copied, found).await?;
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
    Ok((restored, left_out))
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

fn database(source: DatabaseError) -> StoreError {
    StoreError::Database {
        doing: "read the backup's records",
        source,
    }
}

/// Restores blobs, and compares them and the manifests with their digests.
async fn restore_contents(
    records: &Database,
    root: &Path,
    backup: &Path,
    if_damaged: Damaged,
    mut report: impl FnMut(&Restored) + Send,
) -> Result<(Restored, Vec<Found>)> {
    let open = |top: &Path| Directory::open(&top.join(OBJECTS)).map_err(failed("open", top));
    let (from, to) = (open(backup)?, open(root)?);
    let mut restored = Restored {
        repositories: records.read(repositories::count).await.map_err(database)?,
        ..Restored::default()
    };
    let mut damaged = compare_manifests(records, &mut restored).await?;
    let places = Places { from, to, if_damaged };
    restore_pieces(records, &places, &mut restored).await?;
    report(&restored);
    let mut after: Option<Digest> = None;
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
        for blob in blobs {
            if let Some(damage) = restore_blob(records, &places, &blob, &mut restored).await? {
                damaged.push((blob.digest.clone(), damage, Some(blob)));
            }
        }
        report(&restored);
    }
    match if_damaged {
        Damaged::EndsIt if !damaged.is_empty() => Err(StoreError::BadBackup {
            damaged: damaged.into_iter().map(|(digest, ..)| digest).collect(),
        }),
        _ => Ok((restored, damaged)),
    }
}

/// Those with wrong bytes.
async fn compare_manifests(records: &Database, restored: &mut Restored) -> Result<Vec<Found>> {
    let mut damaged = Vec::new();
    let mut after: Option<Digest> = None;
    loop {
        let start = after.take();
        let found = records
            .read(move |tx| manifests::contents(tx, 4, start.as_ref()))
            .await
            .map_err(database)?;
        for (digest, content) in &found {
            if Digest::of(digest.algorithm(), content) == *digest {
                restored.manifests += 1;
                restored.bytes += content.len() as u64;
            } else {
                damaged.push((digest.clone(), Damage::Manifest, None));
            }
        }
        match found.into_iter().next_back() {
            Some((digest, _)) => after = Some(digest),
            None => return Ok(damaged),
        }
    }
}

/// Where objects are restored from and to.
#[derive(Clone)]
struct Places {
    from: Directory,
    to: Directory,
    if_damaged: Damaged,
}

/// Restores packs and recipes, and notes those that are missing or wrong in the records. Of the marks in the backup none counts.
async fn restore_pieces(records: &Database, places: &Places, restored: &mut Restored) -> Result<()> {
    records.write(recipes::forget_damage).await.map_err(database)?;
    let mut after = None;
    loop {
        let listed = records
            .read(move |tx| packs::list(tx, STEP, after, u64::MAX))
            .await;
        let listed = listed.map_err(database)?;
        after = listed.last().map(|pack| pack.key);
        for pack in &listed {
            let damage = restore_object(places, &pack.object, &pack.checksum).await?;
            restored.count_piece(pack.size, damage.is_none());
            if damage.is_some() {
                let (key, object) = (pack.key, pack.object.clone());
                let noted = records.write(move |tx| recipes::note_pack_damage(tx, key, &object, now()));
                noted.await.map_err(database)?;
            }
        }
        if listed.is_empty() {
            break;
        }
    }
    let mut after: Option<Digest> = None;
    loop {
        let start = after.take();
        let listed = records
            .read(move |tx| recipes::list(tx, STEP, start.as_ref(), u64::MAX))
            .await;
        let listed = listed.map_err(database)?;
        after = listed.last().map(|recipe| recipe.blob.clone());
        if listed.is_empty() {
            return Ok(());
        }
        for recipe in listed {
            let damage = restore_object(places, &recipe.object, &recipe.checksum).await?;
            restored.count_piece(recipe.size, damage.is_none());
            if damage.is_some() {
                let noted = records.write(move |tx| recipes::note_damage(tx, &recipe, now()));
                noted.await.map_err(database)?;
            }
        }
    }
}

/// Why a blob cannot be restored, if it cannot.
async fn restore_blob(
    records: &Database,
    places: &Places,
    blob: &Blob,
    restored: &mut Restored,
) -> Result<Option<Damage>> {
    let damage = match &blob.object {
        Some(object) => restore_object(places, object, &blob.digest).await?,
        None => {
            let digest = blob.digest.clone();
            let sound = records.read(move |tx| recipes::sound(tx, &digest)).await;
            let is_sound = sound.map_err(database)?.is_some();
            (!is_sound).then_some(Damage::Recipe)
        }
    };
    if damage.is_none() {
        restored.blobs += 1;
        restored.bytes += blob.object.as_ref().map_or(0, |_| blob.size);
    }
    Ok(damage)
}

/// Restores an object and compares all of it with its digest; why it cannot be restored, if it cannot.
async fn restore_object(places: &Places, key: &str, wanted: &Digest) -> Result<Option<Damage>> {
    let (places, key, wanted) = (places.clone(), key.to_owned(), wanted.clone());
    blocking(move || {
        let place = |directory: &Directory| directory.path(&key).map_err(failed("find", Path::new(&key)));
        let (source, target) = (place(&places.from)?, place(&places.to)?);
        let found = copy(&source, &target).and_then(|()| hash(&target, &wanted));
        let damage = match found {
            Ok(digest) if digest == wanted => return Ok(None),
            Ok(_) => Damage::WrongBytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Damage::Missing,
            Err(error) => match hash(&source, &wanted) {
                Err(why) if places.if_damaged == Damaged::IsLeftOut && is_of_the_disk(&why) => {
                    Damage::Unreadable(why.to_string())
                }
                _ => return Err(failed("restore", &source)(error)),
            },
        };
        remove(&target).map_err(failed("remove", &target))?;
        Ok(Some(damage))
    })
    .await
}

/// Whether an error says that bytes are lost. Others, such as missing rights, say nothing of them.
fn is_of_the_disk(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG))
}

/// Marks damaged blobs, so that they count as absent, and finds what names them. One that a scrub had marked before the backup counts
/// again if its bytes in the backup are right.
async fn leave_out(records: &Database, found: Vec<Found>) -> Result<Vec<LeftOut>> {
    records.write(blobs::forget_damage).await.map_err(database)?;
    let mut left_out = Vec::new();
    for some in found.chunks(STEP) {
        let some = some.to_vec();
        let written = records.write(move |tx| some.iter().map(|found| mark(tx, found)).collect());
        let marked: Vec<LeftOut> = written.await.map_err(database)?;
        left_out.extend(marked);
    }
    Ok(left_out)
}

fn mark(tx: &mut dyn Transaction, (digest, damage, blob): &Found) -> Result<LeftOut, DatabaseError> {
    if let Some(blob) = blob {
        blobs::note_scrub(tx, blob, false, now())?;
    }
    let mut named_by = Vec::new();
    for (id, repository, manifest) in manifests::naming(tx, digest, NAMED)? {
        let tags = tags::of_manifest(tx, id, &manifest, NAMED)?.into_iter();
        named_by.push(NamedBy {
            repository,
            manifest,
            tags: tags.map(|tag| tag.name).collect(),
        });
    }
    Ok(LeftOut {
        digest: digest.clone(),
        damage: damage.clone(),
        named_by,
    })
}
