//! The layers in which contents are looked for.

use xebec_access::Action;
use xebec_dedup::{Restorer, Source};
use xebec_native::push;
use xebec_recipe::ChunkId;
use xebec_store::{Digest, RepositoryName};

use super::super::call::Call;
use super::super::failure;
use crate::error::ApiError;

/// Memory for the recipes of the layers of one request, in bytes. Layers beyond it are not looked at.
const MOST_MEMORY: u64 = 64 << 20;

/// Opens those of the named layers that the caller may pull and that were taken apart. What the caller may not pull is not even looked up, so
/// that the time of the answer says nothing of it.
pub(super) async fn open(
    call: &Call<'_>,
    target: &RepositoryName,
    restorer: &Restorer,
    named: &[push::Source],
) -> Result<Vec<Source>, ApiError> {
    let store = &call.registry.store;
    let (mut sources, mut memory) = (Vec::new(), 0);
    for push::Source { repository, layer } in named {
        let repository = match repository {
            Some(name) => name.parse(),
            None => Ok(target.clone()),
        };
        // A name that is none is one that has no layers.
        let (Ok(repository), Ok(digest)) = (repository, layer.parse::<Digest>()) else {
            continue;
        };
        if !call.may(&repository, Action::Pull) {
            continue;
        }
        let blob = store.peek_blob(&repository, &digest).await;
        let Some(blob) = blob.map_err(|error| failure::of("looking up a layer", &error))? else {
            continue;
        };
        match restorer.source(store, &blob).await {
            Ok(Some(source)) if memory + source.weight() <= MOST_MEMORY => {
                memory += source.weight();
                sources.push(source);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%digest, "contents of a layer are not used: {error}"),
        }
    }
    Ok(sources)
}

/// The first layer that has a content of this length.
pub(super) fn find(sources: &[Source], id: &ChunkId, length: u32) -> Option<usize> {
    sources
        .iter()
        .position(|source| source.length(id) == Some(length as usize))
}
