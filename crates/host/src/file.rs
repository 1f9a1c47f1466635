//! Files that appear whole: written under a temporary name, synced, renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Replaces the file at `path` with `bytes`. A reader sees the old file or the new one, after a crash too.
///
/// # Errors
/// I/O errors; the old file is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.{serial}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
