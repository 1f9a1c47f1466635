//! The platform of one image, which its configuration names.

use futures_util::StreamExt as _;
use xebec_oci::image_config::ImageConfig;
use xebec_oci::{ImageManifest, Platform};
use xebec_store::{RepositoryName, Result, Store};

/// The largest configuration that is read for a page. Most have a few KiB.
const MAX_CONFIG: u64 = 256 << 10;

/// `linux/amd64`. `None` when the configuration is large, is not here or names none.
///
/// # Errors
/// When the records cannot be read.
pub(super) async fn platform(
    store: &Store,
    name: &RepositoryName,
    image: &ImageManifest,
) -> Result<Option<String>> {
    let Ok(digest) = image.config.digest.to_string().parse() else {
        return Ok(None);
    };
    let Some(blob) = store.peek_blob(name, &digest).await? else {
        return Ok(None);
    };
    if blob.size > MAX_CONFIG {
        return Ok(None);
    }
    // A page shows what can be read, and a scrub finds what cannot.
    let Ok(mut stream) = store.read(&blob, 0..blob.size).await else {
        return Ok(None);
    };
    let mut text = Vec::new();
    while let Some(part) = stream.next().await {
        match part {
            Ok(part) => text.extend_from_slice(&part),
            Err(_) => return Ok(None),
        }
    }
    Ok(ImageConfig::parse(&text).ok().and_then(|config| named(&config)))
}

fn named(config: &ImageConfig) -> Option<String> {
    let platform = Platform {
        os: config.os.clone(),
        architecture: config.architecture.clone(),
        variant: config.variant.clone().filter(|variant| !variant.is_empty()),
    };
    let is_named = !platform.os.is_empty() && !platform.architecture.is_empty();
    is_named.then(|| platform.to_string())
}
