//! Where seeds go, and what several kinds of them share.

use std::io;
use std::path::Path;

use xebec_format::digest::Digest;

/// Anything that went wrong.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// The media type of an image's manifest.
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Digests that stand for a layer's and its index's.
pub(crate) const LAYER: Digest = Digest::from_bytes([0x11; 32]);
pub(crate) const INDEX: Digest = Digest::from_bytes([0x22; 32]);

/// Writes one seed of a target.
pub(crate) fn put(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let directory = Path::new("fuzz/seeds").join(target);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(name), bytes)
}

/// Writes seeds that are text.
pub(crate) fn put_texts(target: &str, texts: &[&str]) -> io::Result<()> {
    for (number, text) in texts.iter().enumerate() {
        put(target, &format!("{number:02}"), text.as_bytes())?;
    }
    Ok(())
}
