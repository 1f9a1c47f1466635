//! The objects of a backup: each is taken from the first place that gives right bytes. One that no place gives is put down, and the others follow.
//!
//! [`Copying`] takes an object from one source; here is which source comes next, and what is counted.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use xebec_objects::{Digest, Directory};
use xebec_placement::PlaceName;

use super::backup_copying::{Copying, Tried, blocking, failed};
use super::reading::Source;
use crate::database::{Database, DatabaseError};
use crate::error::{Result, StoreError};
use crate::model::Blob;
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
    copying: Copying<'a>,
    to: Directory,
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
            copying: Copying { store, from, copy },
            to,
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
        let is_known = sought.is_main_damaged || (!is_taken && sought.away.is_none());
        if is_known && let Some(owner) = self.owner(kind, object).await? {
            self.store.note_damage(owner, &object.key).await?;
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
            match self.copying.take_main(key, object, to).await? {
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
            match self.copying.copy_from(source, object, to).await? {
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

pub(super) fn of_records(source: DatabaseError) -> StoreError {
    StoreError::Database {
        doing: "work on the copy of the records",
        source,
    }
}
