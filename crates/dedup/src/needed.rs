//! How much of a pack is needed: the chunks that any recipe names of those that need it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use xebec_recipe::{ChunkId, PackIndex};
use xebec_store::{Digest, PackKey, PackRecord, RecipeRecord, Store, StoreError};

use crate::damage;
use crate::error::DedupError;
use crate::objects::{Objects, PackObject};
use crate::opened::{read_index, read_recipe};

/// A pack that more recipes need is not looked at. Each takes 200 bytes of memory.
pub(crate) const MOST_USERS: usize = 20_000;
/// Recipes that are remembered as a reason why a pack stays.
const MOST_WITNESSES: usize = 32;
/// Recipes that are looked up at once.
const STEP: usize = 256;

/// A recipe that needs chunks of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    blob: Digest,
    /// The object of the recipe. Another recipe of the same blob may need other chunks.
    recipe: String,
}

/// The outcome of looking at a pack.
pub(crate) enum Need {
    /// Half of it at least is needed by these recipes alone. As long as they are here, nobody needs to look again.
    Enough(Vec<Witness>),
    /// Less is needed.
    Little(Candidate),
    /// That cannot be said now, or costs too much to remember.
    Unknown,
}

/// A pack of which little is needed.
pub(crate) struct Candidate {
    pub(crate) pack: PackRecord,
    pub(crate) index: Arc<PackIndex>,
    /// The chunks that are needed.
    pub(crate) needed: HashSet<ChunkId>,
    /// Their plain bytes.
    pub(crate) bytes: u64,
    /// The blobs whose recipes need the pack, each with the object of its recipe.
    pub(crate) users: BTreeMap<Digest, String>,
}

/// Whether these recipes still need a pack.
///
/// # Errors
/// If the database fails.
pub(crate) async fn still_need(
    store: &Store,
    key: PackKey,
    witnesses: &[Witness],
) -> Result<bool, StoreError> {
    for Witness { blob, recipe } in witnesses {
        let record = store.recipe(blob).await?;
        let is_so = record.is_some_and(|record| record.object == *recipe && needs(&record, key));
        if !is_so {
            return Ok(false);
        }
    }
    Ok(true)
}

fn needs(record: &RecipeRecord, key: PackKey) -> bool {
    record.packs.iter().any(|pack| pack.key == key)
}

/// Looks at a pack. It reads recipes, one after the other, until they need half of the plain bytes, or all.
///
/// # Errors
/// If the database or the object store fails.
pub(crate) async fn look(store: &Store, pack: &PackRecord) -> Result<Need, DedupError> {
    let object = PackObject::from(pack);
    let index = match read_index(store, &object).await {
        Ok(index) => Arc::new(index),
        Err(error) => return unreadable(store, None, error).await,
    };
    let mut found = Candidate {
        pack: pack.clone(),
        index,
        needed: HashSet::new(),
        bytes: 0,
        users: BTreeMap::new(),
    };
    let (mut witnesses, mut after) = (Vec::new(), None);
    loop {
        let page = store.pack_users(pack.key, STEP, after.as_ref()).await?;
        if found.users.len() + page.items.len() > MOST_USERS {
            return Ok(Need::Unknown);
        }
        for user in &page.items {
            // It may have gone meanwhile.
            let record = store.recipe(user).await?;
            let Some(record) = record.filter(|record| needs(record, pack.key)) else {
                continue;
            };
            let before = found.bytes;
            if let Err(error) = found.add(store, &record).await {
                return unreadable(store, Some(&record), error).await;
            }
            if found.bytes > before {
                witnesses.push(Witness {
                    blob: user.clone(),
                    recipe: record.object,
                });
            }
            if found.bytes.saturating_mul(2) >= pack.plain {
                return Ok(match witnesses.len() <= MOST_WITNESSES {
                    true => Need::Enough(witnesses),
                    false => Need::Unknown,
                });
            }
        }
        after = page.items.into_iter().next_back();
        if !page.next {
            break;
        }
    }
    Ok(match found.users.is_empty() {
        // A collection takes it.
        true => Need::Unknown,
        false => Need::Little(found),
    })
}

impl Candidate {
    /// One more recipe needs the pack. What it names and what is also in another of its packs counts here, too: too much stays rather than too little.
    async fn add(&mut self, store: &Store, record: &RecipeRecord) -> Result<(), DedupError> {
        let recipe = read_recipe(store, &record.blob, &Objects::from(record)).await?;
        for (id, length) in recipe.chunks() {
            if self.index.find(&id).is_some() && self.needed.insert(id) {
                self.bytes += u64::from(length);
            }
        }
        self.users.insert(record.blob.clone(), record.object.clone());
        Ok(())
    }
}

/// A pack is let alone if it is damaged, or a recipe that needs it: the store is told of that.
async fn unreadable(
    store: &Store,
    record: Option<&RecipeRecord>,
    error: DedupError,
) -> Result<Need, DedupError> {
    if !error.is_damage() {
        return Err(error);
    }
    match record {
        Some(record) => damage::note(store, record, &error).await,
        None => {
            damage::note_pack(store, &error).await;
        }
    }
    Ok(Need::Unknown)
}
