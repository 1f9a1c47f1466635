//! The part that never waits for other services: the store and the directories beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{error, warn};
use xebec_kernel::disk_usage;

use crate::api::{Kind, Mount};
use crate::directories::{Directories, Looks};
use crate::error::{ErrorKind, SnapshotError};
use crate::mapped::Mapped;
use crate::mounts::{self, Layers};
use crate::record::Record;
use crate::store::{Chain, New, Store};
use crate::usage::Usage;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) directories: Arc<Directories>,
    pub(super) mapped: Mapped,
}

impl Inner {
    pub(super) fn measure(&self, id: u64) -> Result<Usage, SnapshotError> {
        let upper = self.directories.upper(id);
        let usage = disk_usage::of(&upper).map(Usage::from);
        usage.map_err(|error| SnapshotError::io("measure", &upper, &error))
    }

    /// Takes directories away that belong to no snapshot.
    pub(super) fn remove_strangers(&self) -> Result<(), SnapshotError> {
        self.store.ids(|ids| {
            let names = ids.iter().map(|id| Directories::name(*id)).collect();
            self.mapped.unbind_strangers(&names);
            self.directories.remove_strangers(ids)
        })
    }

    /// Takes away what is bound for a snapshot, which holds its view.
    pub(super) fn unbind(&self, id: u64) {
        self.mapped.unbind(&Directories::name(id));
    }

    /// Says early what [`Store::create`] would say, and what it would be made on.
    pub(super) fn can_be_made(&self, key: &str, parent: &str) -> Result<Vec<Record>, SnapshotError> {
        match self.store.get(key) {
            Ok(_) => return Err(SnapshotError::exists(key)),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if parent.is_empty() {
            return Ok(Vec::new());
        }
        let Chain { record, mut below } = self.store.chain(parent)?;
        below.insert(0, record);
        Ok(below)
    }

    pub(super) fn create(&self, new: New<'_>, view: Option<&Path>) -> Result<Vec<Mount>, SnapshotError> {
        let kind = new.kind;
        let mut mounts = Vec::new();
        let mut id = None;
        let created = self.store.create(new, |chain| {
            id = Some(chain.record.id);
            // It may be left over from one that never came to be.
            self.unbind(chain.record.id);
            let mut looks = match (chain.below.first(), view) {
                (None, _) => Looks::DEFAULT,
                (Some(parent), Some(view)) if parent.lazy.is_some() => Looks::of(view)?,
                (Some(parent), _) => Looks::of(&self.directories.upper(parent.id))?,
            };
            if let Some(mapping) = &chain.record.id_mapping {
                (looks.uid, looks.gid) = mapping.owner(looks.uid, looks.gid);
            }
            let is_written = kind == Kind::Active;
            self.directories.create(chain.record.id, is_written, looks)?;
            mounts = self.mounts(chain, view)?;
            Ok(())
        });
        if let (Err(_), Some(id)) = (&created, id) {
            self.unbind(id);
        }
        created.map(|_| mounts)
    }

    pub(super) fn mounts(&self, chain: &Chain, view: Option<&Path>) -> Result<Vec<Mount>, SnapshotError> {
        let id = chain.record.id;
        let kind = chain.record.kind();
        let id_mapping = chain.record.id_mapping.as_ref();
        let unpacked = chain.below.iter().filter(|record| record.lazy.is_none());
        let mut lower: Vec<PathBuf> = unpacked.map(|record| self.directories.upper(record.id)).collect();
        let is_alone = lower.len() + usize::from(view.is_some()) == 1;
        // containerd maps nothing in a bind that is only read. An overlay needs two directories; an empty one below changes
        // nothing.
        let is_extended = id_mapping.is_some() && is_alone && kind == Kind::View;
        match (view, id_mapping) {
            (None, _) => {}
            (Some(view), Some(_)) => {
                let uppers = self.directories.uppers();
                let is_mixed = is_extended || !lower.is_empty();
                let name = Directories::name(id);
                let place = self.mapped.bind(&name, view, is_mixed.then_some(&*uppers))?;
                let moved = |path: &PathBuf| place.uppers.join(path.file_name().unwrap_or_default());
                lower = lower.iter().map(moved).collect();
                lower.push(place.view.clone());
                if is_extended {
                    lower.push(moved(&self.directories.upper(id)));
                }
            }
            // By a link beside the others, so that all have a directory in common; see `directories`.
            (Some(view), None) => lower.push(match lower.is_empty() && kind == Kind::View {
                true => view.to_owned(),
                false => self.directories.link_view(id, view)?,
            }),
        }
        if is_extended && view.is_none() {
            lower.push(self.directories.upper(id));
        }
        Ok(mounts::compose(&Layers {
            kind,
            id_mapping,
            upper: &self.directories.upper(id),
            work: &self.directories.work(id),
            lower: &lower,
        }))
    }

    /// Makes directories again that a snapshot lacks, unless an image's files were in them.
    pub(super) fn restore(&self, name: &str, record: &Record) -> Result<(), SnapshotError> {
        if record.lazy.is_some() || self.directories.upper(record.id).exists() {
            return Ok(());
        }
        if record.kind() == Kind::Committed {
            error!(
                "snapshot {name:?} lost its files, perhaps by a power loss. Remove its image and pull it again"
            );
            return Ok(());
        }
        warn!("snapshot {name:?} lost its files, perhaps by a power loss. It is empty now");
        let is_written = record.kind() == Kind::Active;
        self.directories.create(record.id, is_written, Looks::DEFAULT)
    }
}
