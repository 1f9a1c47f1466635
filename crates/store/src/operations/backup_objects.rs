//! The objects of a backup: each is taken from the first place that gives right bytes. One that no place gives is put down, and the others follow.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use xebec_kernel::file::sync_directory;
use xebec_objects::{Digest, Directory, Hasher, make_directory};
use xebec_placement::PlaceName;

use super::reading::Source;
use crate::database::{Database, DatabaseError};
use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::places::is_absence;
use crate::records::intact::{key_elsewhere, main_key};
use crate::records::objects::{self, Kind, Object};
use crate::records::replicas;
use crate::replicas::Owner;
use crate::store::Store;

/// So many of what a backup lacks are remembered. Its file names all.
const REMEMBERED: usize = 1000;

/// The contents of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// Blobs that have an object of their own.
    pub blobs: u64,
    /// Packs and recipes, of which the other blobs are made.
    pub pieces: u64,
    /// The bytes of all these objects.
    pub bytes: u64,
    /// Those of them that an earlier backup had already.
    pub kept: u64,
    /// Those of them that could not be linked, and were copied.
    pub copied: u64,
    /// Copies on any place that had wrong bytes or were gone. They are noted as such, and passed over.
    pub damaged: u64,
    /// Blobs, packs and recipes of which no place has right bytes: scrub the store.
    pub missing: u64,
    /// Those that a place may have that cannot be read now: take the backup again when it can.
    pub away: u64,
    /// What is missing or away, 1,000 at most. The file `incomplete` of the backup names all.
    pub lacks: Vec<Lacking>,
}

/// A blob, pack or recipe that a backup lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// Whether it is a `blob`, a `pack` or a `recipe`.
    pub what: &'static str,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Why a place cannot be read that may have it; none if there are no right bytes of it.
    pub away: Option<String>,
}

impl fmt::Display for Lacking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, digest, away } = self;
        match away {
            Some(why) => {
                // Each has one line, whatever a place has answered.
                let why = why.replace(char::is_control, " ");
                write!(formatter, "{what} {digest} cannot be read now: {why}")
            }
            None => write!(formatter, "{what} {digest} has no copy with right bytes"),
        }
    }
}

pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { doing, path, source }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| StoreError::System {
        doing: "work on a backup",
        source: io::Error::other(error),
    })?
}

/// It need not be there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Links a file to `to`, or copies it to `copy` where that cannot be; whether it was copied. A link is whole at once, and a copy is not.
pub(super) fn link_or_copy(from: &Path, to: &Path, copy: &Path) -> io::Result<bool> {
    to.parent().map_or(Ok(()), make_directory)?;
    remove(to)?;
    let is_copied = match fs::hard_link(from, to) {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        // On another file system, or one without links.
        Err(_) => {
            remove(copy)?;
            fs::copy(from, copy)?;
            fs::File::open(copy)?.sync_all()?;
            true
        }
    };
    to.parent().map_or(Ok(()), sync_directory)?;
    Ok(is_copied)
}

/// Gives a copy the name of its object, now that its bytes are right and durable.
fn give_name(copy: &Path, to: &Path) -> io::Result<()> {
    to.parent().map_or(Ok(()), make_directory)?;
    fs::rename(copy, to)?;
    to.parent().map_or(Ok(()), sync_directory)
}

/// The digest of a file, by the algorithm of the one that it should have.
pub(super) fn hash(path: &Path, wanted: &Digest) -> io::Result<Digest> {
    let mut hasher = Hasher::new(wanted.algorithm());
    hasher.read(fs::File::open(path)?)?;
    Ok(hasher.finish())
}

/// What came of one source of an object.
enum Tried {
    /// The backup has it; whether it was copied, and not linked.
    Taken(bool),
    /// The source has wrong bytes, or none.
    Damaged,
    /// Nobody knows: it cannot be read.
    Unread(String),
}

/// What is known of an object after some sources were tried.
#[derive(Default)]
struct Sought {
    /// Whether the main place has wrong bytes, or none.
    is_main_damaged: bool,
    /// Whether shards have given wrong bytes. It is noted which: others may do.
    has_wrong_shards: bool,
    away: Option<String>,
}

/// Copies objects to a backup, and counts them.
pub(super) struct Copier<'a> {
    store: &'a Store,
    records: &'a Database,
    from: Directory,
    to: Directory,
    /// The copy that is being made. Under the name of an object, half of it would count as kept by the next backup if this one is killed.
    copy: PathBuf,
    /// The file for what is lacking, and its writer once there is something.
    list: PathBuf,
    listed: Option<BufWriter<fs::File>>,
    /// Places that did not answer, and why. They are not asked again: each time may take long.
    silent: BTreeMap<PlaceName, String>,
    pub(super) backed_up: BackedUp,
}

impl<'a> Copier<'a> {
    /// From `from`, the main place, and all others to `to`, where each copy is made as `copy`. What is lacking is written to `list`.
    pub(super) fn new(
        store: &'a Store,
        records: &'a Database,
        (from, to): (Directory, Directory),
        [copy, list]: [PathBuf; 2],
    ) -> Self {
        Self {
            store,
            records,
            from,
            to,
            copy,
            list,
            listed: None,
            silent: BTreeMap::new(),
            backed_up: BackedUp::default(),
        }
    }

    /// Copies an object that the copied records name.
    pub(super) async fn copy(&mut self, kind: Kind, object: &Object) -> Result<()> {
        let key = key_elsewhere(&object.key).to_owned();
        let to = self.to.path(&key).map_err(failed("find", Path::new(&key)))?;
        let (size, known) = (object.size, to.clone());
        let is_here =
            blocking(move || Ok(fs::metadata(&known).is_ok_and(|found| found.len() == size))).await?;
        let is_taken = match is_here {
            true => {
                self.backed_up.kept += 1;
                true
            }
            false => self.take(kind, object, &to).await?,
        };
        if is_taken {
            let backed_up = &mut self.backed_up;
            backed_up.bytes += object.size;
            *(match kind {
                Kind::Blob => &mut backed_up.blobs,
                Kind::Pack | Kind::Recipe => &mut backed_up.pieces,
            }) += 1;
        }
        if main_key(&object.key).is_some() {
            return Ok(());
        }
        // One that is missing has a name, too, that a restore can look for.
        let name = object.key.clone();
        let renamed = self
            .records
            .write(move |tx| replicas::rename_in_copy(tx, &name, &key));
        renamed.await.map_err(of_records)
    }

    /// Takes an object from the first source that gives right bytes; whether there is one.
    async fn take(&mut self, kind: Kind, object: &Object, to: &Path) -> Result<bool> {
        let mut sought = Sought::default();
        let is_taken = self.take_named(&object.key, object, to, &mut sought).await?
            || self.take_otherwise(kind, object, to, &mut sought).await?;
        if sought.is_main_damaged || (!is_taken && sought.away.is_none()) {
            self.note_damage(kind, object).await?;
        }
        if !is_taken {
            self.put_down(Lacking {
                what: match kind {
                    Kind::Blob => "blob",
                    Kind::Pack => "pack",
                    Kind::Recipe => "recipe",
                },
                digest: object.digest.clone(),
                away: sought.away,
            })?;
        }
        Ok(is_taken)
    }

    /// The same of one that has this name.
    async fn take_named(
        &mut self,
        name: &str,
        object: &Object,
        to: &Path,
        sought: &mut Sought,
    ) -> Result<bool> {
        if let Some(key) = main_key(name) {
            match self.take_main(key, object, to).await? {
                Tried::Taken(is_copied) => {
                    self.backed_up.copied += u64::from(is_copied);
                    return Ok(true);
                }
                Tried::Damaged => {
                    self.backed_up.damaged += 1;
                    sought.is_main_damaged = true;
                }
                Tried::Unread(why) => sought.keep(format!("on {}: {why}", PlaceName::main())),
            }
        }
        sought.has_wrong_shards = false;
        if self.take_elsewhere(name, object, to, sought).await? {
            return Ok(true);
        }
        match sought.has_wrong_shards {
            true => self.take_elsewhere(name, object, to, sought).await,
            false => Ok(false),
        }
    }

    async fn take_elsewhere(
        &mut self,
        name: &str,
        object: &Object,
        to: &Path,
        sought: &mut Sought,
    ) -> Result<bool> {
        let sources = self.store.other_sources(name).await;
        let sources = sources.map_err(|source| StoreError::Object {
            doing: "find the replicas of an object",
            key: name.to_owned(),
            source,
        })?;
        self.take_from(&sources, object, to, sought).await
    }

    async fn take_from(
        &mut self,
        sources: &[Source],
        object: &Object,
        to: &Path,
        sought: &mut Sought,
    ) -> Result<bool> {
        for source in sources {
            if source.needs(|place| self.silent.contains_key(place)) {
                let places = source.places();
                let whys = places.iter().filter_map(|place| self.silent.get(place));
                whys.for_each(|why| sought.keep(why.clone()));
                continue;
            }
            match self.copy_from(source, object, to).await? {
                Tried::Taken(_) => {
                    self.backed_up.copied += 1;
                    return Ok(true);
                }
                Tried::Damaged => match self.store.note_wrong_source(source).await? {
                    Ok(damaged) => {
                        self.backed_up.damaged += damaged;
                        sought.has_wrong_shards |= matches!(source, Source::Shards(_));
                    }
                    Err(error) => self.note_unread(source, &error.to_string(), sought).await,
                },
                Tried::Unread(why) => self.note_unread(source, &why, sought).await,
            }
        }
        Ok(false)
    }

    /// Notes that a source cannot be read, and which of its places do not answer at all.
    async fn note_unread(&mut self, source: &Source, why: &str, sought: &mut Sought) {
        let mut names = Vec::new();
        for place in source.places() {
            names.push(place.to_string());
            if let Err(error) = self.store.look_again(&place).await {
                let why = format!("on {place}: {error}");
                sought.keep(why.clone());
                self.silent.insert(place, why);
            }
        }
        match names.is_empty() {
            true => sought.keep(why.to_owned()),
            false => sought.keep(format!("on {}: {why}", names.join(", "))),
        }
    }

    /// Links or copies it from the main place. Of a link, only the size is compared: nothing is read.
    async fn take_main(&self, key: &str, object: &Object, to: &Path) -> Result<Tried> {
        let from = self.from.path(key).map_err(failed("find", Path::new(key)))?;
        match self.store.inner.objects.size(key).await {
            Ok(Some(size)) if size == object.size => {}
            Ok(_) => return Ok(Tried::Damaged),
            Err(error) => return Ok(Tried::Unread(error.to_string())),
        }
        let (wanted, to, copy) = (object.digest.clone(), to.to_owned(), self.copy.clone());
        blocking(move || {
            let taken = link_or_copy(&from, &to, &copy).and_then(|is_copied| {
                let is_right = !is_copied || hash(&copy, &wanted)? == wanted;
                if is_copied && is_right {
                    give_name(&copy, &to)?;
                }
                Ok((is_copied, is_right))
            });
            let tried = match taken {
                Ok((is_copied, true)) => return Ok(Tried::Taken(is_copied)),
                Ok((_, false)) => Tried::Damaged,
                // It is gone here, and not the directory of the backup.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => Tried::Damaged,
                // Either it cannot be read here, or it cannot be written there.
                Err(error) => match hash(&from, &wanted) {
                    Err(why) => Tried::Unread(why.to_string()),
                    Ok(_) => return Err(failed("back up", &from)(error)),
                },
            };
            remove(&copy).map_err(failed("remove", &copy))?;
            Ok(tried)
        })
        .await
    }

    /// Copies it from another place.
    async fn copy_from(&self, source: &Source, object: &Object, to: &Path) -> Result<Tried> {
        let unread = |error: io::Error| match is_absence(&error) || is_lost(&error) {
            true => Tried::Damaged,
            false => Tried::Unread(error.to_string()),
        };
        let mut pieces = match self.store.read_source(source, 0..object.size).await {
            Ok(pieces) => pieces,
            Err(error) => return Ok(unread(error)),
        };
        let path = self.copy.clone();
        let made = blocking(move || {
            let make = || {
                remove(&path)?;
                fs::File::create_new(&path)
            };
            make().map_err(failed("make", &path))
        });
        let mut file = tokio::fs::File::from_std(made.await?);
        let mut hasher = Hasher::new(object.digest.algorithm());
        let mut tried = None;
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => {
                    hasher.update(&piece);
                    file.write_all(&piece).await.map_err(failed("back up", to))?;
                }
                Err(error) => {
                    tried = Some(unread(error));
                    break;
                }
            }
        }
        let is_right = tried.is_none() && hasher.finish() == object.digest;
        if is_right {
            // A write comes back once its bytes are taken in, and syncing does not tell how the last one ended.
            file.flush().await.map_err(failed("back up", to))?;
            file.sync_all().await.map_err(failed("sync", to))?;
            let written = file.metadata().await.map_err(failed("look at", to))?.len();
            if written != object.size {
                let error = format!("it has {written} bytes, and should have {}", object.size);
                return Err(failed("back up", to)(io::Error::other(error)));
            }
            let (copy, to) = (self.copy.clone(), to.to_owned());
            blocking(move || give_name(&copy, &to).map_err(failed("back up", &to))).await?;
            return Ok(Tried::Taken(true));
        }
        drop(file);
        remove(&self.copy).map_err(failed("remove", &self.copy))?;
        Ok(tried.unwrap_or(Tried::Damaged))
    }

    /// Takes an object from where it is by now, if that is elsewhere: nothing keeps replicas where they were when the records were copied. Then, if it is of a
    /// blob, by its recipe.
    async fn take_otherwise(
        &mut self,
        kind: Kind,
        object: &Object,
        to: &Path,
        sought: &mut Sought,
    ) -> Result<bool> {
        if kind == Kind::Blob {
            let blob = self.store.any_blob(&object.digest).await?;
            let name = blob.as_ref().and_then(|blob| blob.object.clone());
            if let Some(name) = name.filter(|name| *name != object.key)
                && self.take_named(&name, object, to, sought).await?
            {
                return Ok(true);
            }
            let recipe = self.store.recipe(&object.digest).await?;
            let is_made =
                self.store.inner.restorer.get().is_some() && recipe.is_some_and(|recipe| !recipe.is_damaged);
            let apart = blob.filter(|_| is_made).map(|blob| Blob { object: None, ..blob });
            let sources: Vec<Source> = apart.into_iter().map(Source::Restored).collect();
            return self.take_from(&sources, object, to, sought).await;
        }
        let Some(owner) = self.owner(kind, object).await? else {
            return Ok(false);
        };
        let current = self
            .store
            .read_records("find an object that was moved", move |tx| {
                replicas::name_of(tx, &owner)
            })
            .await?;
        match current.filter(|name| *name != object.key) {
            Some(name) => self.take_named(&name, object, to, sought).await,
            None => Ok(false),
        }
    }

    async fn owner(&self, kind: Kind, object: &Object) -> Result<Option<Owner>> {
        let name = object.key.clone();
        let owner = self.records.read(move |tx| objects::owner(tx, kind, &name));
        owner.await.map_err(of_records)
    }

    /// Notes what a reader would that finds wrong bytes, or none: another copy mends the object, or what it is of counts as damaged.
    async fn note_damage(&self, kind: Kind, object: &Object) -> Result<()> {
        match self.owner(kind, object).await? {
            Some(Owner::Blob(digest)) => {
                let blob = self.store.any_blob(&digest).await?;
                let is_same = |blob: &Blob| blob.object.as_ref() == Some(&object.key);
                if let Some(blob) = blob.filter(is_same) {
                    self.store.note_lost(&blob).await?;
                }
            }
            Some(Owner::Pack(key)) => {
                self.store.note_pack_damaged(key).await?;
            }
            Some(Owner::Recipe(digest)) => {
                let recipe = self.store.recipe(&digest).await?;
                if let Some(recipe) = recipe.filter(|recipe| recipe.object == object.key) {
                    self.store.note_recipe_damaged(&recipe).await?;
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Puts down that the backup lacks something.
    fn put_down(&mut self, lacking: Lacking) -> Result<()> {
        let written = match &mut self.listed {
            Some(file) => writeln!(file, "{lacking}"),
            none => fs::File::create(&self.list).and_then(|file| {
                let file = none.insert(BufWriter::new(file));
                writeln!(file, "{lacking}")
            }),
        };
        written.map_err(failed("write", &self.list))?;
        match lacking.away {
            Some(_) => self.backed_up.away += 1,
            None => self.backed_up.missing += 1,
        }
        if self.backed_up.lacks.len() < REMEMBERED {
            self.backed_up.lacks.push(lacking);
        }
        Ok(())
    }

    /// All was tried; what the backup has, and whether there is a list of what it lacks, which is durable then.
    pub(super) fn finish(self) -> Result<(BackedUp, bool)> {
        let is_incomplete = self.listed.is_some();
        if let Some(file) = self.listed {
            let file = file.into_inner().map_err(io::IntoInnerError::into_error);
            let synced = file.and_then(|file| file.sync_all());
            synced.map_err(failed("write", &self.list))?;
        }
        Ok((self.backed_up, is_incomplete))
    }
}

impl Sought {
    /// The first reason is kept.
    fn keep(&mut self, why: String) {
        self.away.get_or_insert(why);
    }
}

/// Whether an error says that what a recipe needs is gone.
fn is_lost(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(StoreError::Lost(_)))
}

pub(super) fn of_records(source: DatabaseError) -> StoreError {
    StoreError::Database {
        doing: "work on the copy of the records",
        source,
    }
}
