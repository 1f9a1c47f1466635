//! The standard input of a plugin: a file, which also tells whether a plugin runs.
//!
//! The file is locked by the descriptor that the plugin has, so the lock ends with the plugin. A supervisor that is killed leaves its
//! plugin running. Another process that takes back what plugins did then waits for that plugin first: else nobody would take back what
//! the plugin does afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use xebec_kernel::lock::try_lock_file;

/// How often the lock is tried.
const INTERVAL: Duration = Duration::from_millis(20);

/// A locked file with these contents, from its beginning. The input of a plugin that still runs stays as it is.
pub(super) fn locked(path: &Path, contents: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let mut file = options.open(path)?;
    file.try_lock()?;
    file.set_len(0)?;
    file.write_all(contents)?;
    file.rewind()?;
    Ok(file)
}

/// Waits until no plugin has the file.
///
/// # Errors
/// `TimedOut` if one still has it after that time.
pub(crate) fn wait_until_free(path: &Path, limit: Duration) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let began = Instant::now();
    loop {
        match try_lock_file(path, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            locked => return locked.map(drop),
        }
        if began.elapsed() > limit {
            let what = "a plugin that a killed command left still runs; end it (`fuser` names it)";
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_file_is_locked_as_long_as_a_program_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("input");
        wait_until_free(&path, Duration::ZERO).unwrap();
        let input = locked(&path, b"text").unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(input).spawn().unwrap();
        let error = wait_until_free(&path, Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(locked(&path, b"other").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"text", "it is read still");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_free(&path, Duration::from_secs(10)).unwrap();
    }
}
