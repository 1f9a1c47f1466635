//! How often pages of a layer were corrected: `corrected` in the layer's folder, a number.
//!
//! A view that was mounted before may have the wrong pages in memory, as long as anything holds it. One that is built
//! afterwards must be another, each time, also when another worker builds it.

use std::fs;
use std::path::PathBuf;

use xebec_cache::store::{LayerKey, Store};
use xebec_kernel::clock::since_1970;
use xebec_kernel::file::write_atomically;
use xebec_protocol::failure::Failure;

/// How often. Where that cannot be read, a number that nobody used before.
pub fn count(store: &Store, key: LayerKey) -> u64 {
    match fs::read_to_string(path(store, key)) {
        Ok(text) => text.trim().parse().unwrap_or_else(|_| now()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(_) => now(),
    }
}

/// In nanoseconds since 1970.
fn now() -> u64 {
    match since_1970().as_nanos() {
        // The clock is wrong. No count is as large.
        0 => u64::MAX,
        now => now as u64,
    }
}

/// Once more.
///
/// # Errors
/// When it cannot be written.
pub fn add(store: &Store, key: LayerKey) -> Result<(), Failure> {
    let text = count(store, key).saturating_add(1).to_string();
    let path = path(store, key);
    write_atomically(&path, text.as_bytes())
        .map_err(|error| Failure::host(format!("write {}", path.display()), error))
}

fn path(store: &Store, key: LayerKey) -> PathBuf {
    store.folder(key).join("corrected")
}
