//! When an image was made, as its configuration says.
//!
//! A registry that runs does not say when a tag was set. That time decides which tags are the newest, and which were pushed lately. If it
//! were the time of the copy, the order among the tags of one run would be chance. A tag that a rule removed and the next run brings
//! again would be newer than all others. So a tag that is not here yet counts as set when its image was made: the youngest one, if it
//! names several. The builder of the image wrote that time, so it counts within bounds:
//!
//! * One in the future counts as now. So nobody gets more by it than by a push.
//! * One before there were such images is none. Builds that are to give the same bytes each time write 1970 or 1980. Then the time of
//!   the copy counts: it keeps such a tag rather too long.
//!
//! A tag that is here and has moved counts as set now: it was set since the last run.

use futures_util::StreamExt as _;
use serde::Deserialize;
use xebec_kernel::clock::parse_rfc3339;
use xebec_store::{Digest, ReferenceKind, RepositoryName, Result, Store};

/// Docker's first release: 20 March 2013, in milliseconds since 1970.
const EARLIEST: u64 = 1_363_737_600_000;
/// No configuration of more bytes is read.
const LARGEST: u64 = 4 << 20;
/// So many manifests are looked at: an index has one for each platform.
const MOST: usize = 64;

/// When the youngest image was made that a manifest of a repository is or lists, in milliseconds since 1970.
///
/// # Errors
/// If the database fails.
pub(super) async fn image_time(
    store: &Store,
    repository: &RepositoryName,
    manifest: &Digest,
) -> Result<Option<u64>> {
    let mut youngest = None;
    let mut waiting = vec![manifest.clone()];
    for _ in 0..MOST {
        let Some(manifest) = waiting.pop() else { break };
        for (kind, named) in store.references(repository, &manifest).await? {
            match kind {
                ReferenceKind::Manifest => waiting.push(named),
                ReferenceKind::Config => {
                    youngest = youngest.max(configured(store, repository, &named).await?);
                }
                ReferenceKind::Layer => {}
            }
        }
    }
    Ok(youngest)
}

/// The time that a configuration gives, if it is here and gives one.
async fn configured(store: &Store, repository: &RepositoryName, digest: &Digest) -> Result<Option<u64>> {
    let Some(blob) = store.peek_blob(repository, digest).await? else {
        return Ok(None);
    };
    if blob.size > LARGEST {
        return Ok(None);
    }
    // Bytes that cannot be read say nothing; a scrub names them.
    let Ok(mut reader) = store.read(&blob, 0..blob.size).await else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    while let Some(piece) = reader.next().await {
        let Ok(piece) = piece else { return Ok(None) };
        bytes.extend_from_slice(&piece);
    }
    Ok(time(&bytes))
}

fn time(configuration: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Configuration {
        created: String,
    }
    let Configuration { created } = serde_json::from_slice(configuration).ok()?;
    let (seconds, nanoseconds) = parse_rfc3339(&created)?;
    let milliseconds = u64::try_from(seconds).ok()?.checked_mul(1000)?;
    let time = milliseconds.checked_add(u64::from(nanoseconds / 1_000_000))?;
    (time >= EARLIEST).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_if_there_were_images_then() {
        let said = |created: &str| time(format!("{{\"created\": \"{created}\"}}").as_bytes());
        assert_eq!(said("2024-05-01T00:00:00.25Z"), Some(1_714_521_600_250));
        assert_eq!(said("2024-05-01T02:00:00+02:00"), Some(1_714_521_600_000));
        for none in [
            "1970-01-01T00:00:00Z",
            "1980-01-01T00:00:01Z",
            "0001-01-01T00:00:00Z",
            "yesterday",
            "",
        ] {
            assert_eq!(said(none), None, "{none}");
        }
        for none in [&b"{}"[..], b"{\"created\": 1714521600}", b"not JSON", b""] {
            assert_eq!(time(none), None);
        }
    }
}
