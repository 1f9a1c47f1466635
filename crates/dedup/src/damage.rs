//! Has the store know of damage that was seen, so that nothing more is made of it.

use xebec_store::{RecipeRecord, Store};

use crate::error::DedupError;
use crate::objects::PackObject;

/// Notes what the error says of stored bytes. `record` is the recipe that was carried out. A pack of another one is noted, too: it is named by a
/// key that no other pack ever gets.
pub(crate) async fn note(store: &Store, record: &RecipeRecord, error: &DedupError) {
    if !error.is_damage() || note_pack(store, error).await {
        return;
    }
    let digest = &record.blob;
    tracing::error!(%digest, "a blob cannot be restored: {error}");
    if let Err(error) = store.note_recipe_damaged(record).await {
        tracing::error!(%digest, "that is not recorded: {error}");
    }
}

/// Notes a damaged pack; `false` if the error is about something else. One that a collection has deleted meanwhile is no damage, and the store knows.
pub(crate) async fn note_pack(store: &Store, error: &DedupError) -> bool {
    let DedupError::Pack {
        pack: PackObject { key: Some(key), .. },
        ..
    } = error
    else {
        return false;
    };
    match store.note_pack_damaged(*key).await {
        Ok(true) => tracing::error!("{error}"),
        Ok(false) => {}
        Err(failed) => tracing::error!("{error}; that is not recorded: {failed}"),
    }
    true
}
