//! Packs: in which one a chunk is, which blobs need one, and how those go that nothing needs.

use crate::error::Result;
use crate::model::Page;
use crate::name::PackKey;
use crate::recipes::{ChunkDigest, PackRecord};
use crate::records::packs::{self, Unchecked};
use crate::store::{Store, now};
use xebec_objects::Digest;

/// So many packs are looked at in one transaction.
const STEP: usize = 256;
/// So many chunks are looked up in one transaction, or go in one.
const CHUNKS: usize = 1024;

impl Store {
    /// For each of these chunks, the sound pack in which it is, if it is here. A recipe may need that pack if [`Store::record_recipe`]
    /// finds it still here.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn chunks_here(&self, chunks: &[ChunkDigest]) -> Result<Vec<Option<PackKey>>> {
        let mut here = Vec::with_capacity(chunks.len());
        for some in chunks.chunks(CHUNKS) {
            let looked_up = some.to_vec();
            let found = self
                .read_records("look for chunks", move |tx| packs::with_chunks(tx, &looked_up))
                .await?;
            here.extend(some.iter().map(|chunk| found.get(chunk).copied()));
        }
        Ok(here)
    }

    /// The packs that are here, damaged ones included, in the order of their keys.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn packs(&self, n: usize, after: Option<PackKey>) -> Result<Page<PackRecord>> {
        let found = self
            .read_records("list packs", move |tx| {
                packs::list(tx, n.saturating_add(1), after, u64::MAX)
            })
            .await?;
        Ok(Page::cut(found, n))
    }

    /// These packs, as far as they are here.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn find_packs(&self, keys: &[PackKey]) -> Result<Vec<PackRecord>> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(STEP) {
            let some = some.to_vec();
            let some = self
                .read_records("find packs", move |tx| packs::find(tx, &some))
                .await?;
            found.extend(some);
        }
        Ok(found)
    }

    /// The blobs whose recipes need a pack, in the order of their digests.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn pack_users(&self, key: PackKey, n: usize, after: Option<&Digest>) -> Result<Page<Digest>> {
        let after = after.cloned();
        let found = self
            .read_records("find what needs a pack", move |tx| {
                packs::users(tx, key, n.saturating_add(1), after.as_ref())
            })
            .await?;
        Ok(Page::cut(found, n))
    }

    /// Nobody looks for a chunk in this pack any more. In steps, since it may have a hundred thousand.
    pub(crate) async fn drop_chunks(&self, key: PackKey) -> Result<()> {
        loop {
            let dropped = self
                .write_records("forget chunks", move |tx| packs::drop_chunks(tx, key, CHUNKS))
                .await?;
            if dropped < CHUNKS as u64 {
                return Ok(());
            }
        }
    }

    /// Condemns packs that no recipe needs and that were recorded before that time, and removes all condemned ones; how many these are, and
    /// their bytes. A dry run counts them.
    pub(crate) async fn collect_packs(&self, dry_run: bool, before: u64) -> Result<(u64, u64)> {
        let unneeded = self.condemn_packs(dry_run, before).await?;
        let (mut number, mut bytes) = if dry_run { unneeded } else { (0, 0) };
        let mut after = None;
        loop {
            let found = self
                .read_records("find condemned packs", move |tx| packs::condemned(tx, after))
                .await?;
            let Some((key, size)) = found else {
                return Ok((number, bytes));
            };
            (number, bytes, after) = (number + 1, bytes + size, Some(key));
            if !dry_run {
                self.drop_chunks(key).await?;
                self.write_records("remove a pack", move |tx| packs::remove(tx, key, now()))
                    .await?;
            }
        }
    }

    async fn condemn_packs(&self, dry_run: bool, before: u64) -> Result<(u64, u64)> {
        let (mut number, mut bytes) = (0, 0);
        let mut after: Option<Unchecked> = None;
        loop {
            let from = after.take();
            let found = match dry_run {
                true => {
                    self.read_records("find packs that no recipe needs", move |tx| {
                        packs::unchecked(tx, before, STEP, from.as_ref())
                    })
                    .await?
                }
                false => {
                    self.write_records("condemn packs that no recipe needs", move |tx| {
                        let found = packs::unchecked(tx, before, STEP, from.as_ref())?;
                        for pack in &found {
                            match pack.is_needed {
                                true => packs::keep(tx, pack.key)?,
                                false => packs::condemn(tx, pack.key)?,
                            }
                        }
                        Ok(found)
                    })
                    .await?
                }
            };
            for pack in found.iter().filter(|pack| !pack.is_needed) {
                number += 1;
                bytes += pack.size;
            }
            if found.len() < STEP {
                return Ok((number, bytes));
            }
            after = found.into_iter().next_back();
        }
    }
}
