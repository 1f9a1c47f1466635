//! What a directory takes on disk: blocks that are allocated, and inodes, a file with several names once.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes and inodes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Usage {
    /// Bytes, in whole blocks.
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
    /// Inodes, the directory's own among them.
    #[prost(uint64, tag = "2")]
    pub inodes: u64,
}

/// What `stat` counts blocks in.
const BLOCK: u64 = 512;

/// What is at and below `directory`. Files that go meanwhile are not counted.
///
/// # Errors
/// When a directory cannot be read.
pub fn of(directory: &Path) -> io::Result<Usage> {
    let mut usage = Usage::default();
    // Only files with several names can be met twice.
    let mut met = HashSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let Some(status) = found(fs::symlink_metadata(&path))? else {
            continue;
        };
        let is_new = status.nlink() < 2 || status.is_dir() || met.insert((status.dev(), status.ino()));
        if is_new {
            usage.bytes = usage.bytes.saturating_add(status.blocks().saturating_mul(BLOCK));
            usage.inodes += 1;
        }
        if status.is_dir()
            && let Some(entries) = found(fs::read_dir(&path))?
        {
            for entry in entries {
                left.push(entry?.path());
            }
        }
    }
    Ok(usage)
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_not_sizes_and_links_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let empty = of(path).unwrap();
        assert_eq!(empty.inodes, 1);
        fs::write(path.join("file"), vec![7; 100_000]).unwrap();
        let one = of(path).unwrap();
        assert!(one.bytes - empty.bytes >= 100_000, "{one:?}");
        fs::hard_link(path.join("file"), path.join("again")).unwrap();
        assert_eq!(of(path).unwrap(), one);
        // A hole takes an inode and no blocks.
        let hole = fs::File::create(path.join("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let with_hole = of(path).unwrap();
        assert_eq!(with_hole.inodes, one.inodes + 1);
        assert!(with_hole.bytes - one.bytes < 1 << 20, "{with_hole:?}");
        std::os::unix::fs::symlink("/", path.join("link")).unwrap();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/x"), "x").unwrap();
        assert_eq!(of(path).unwrap().inodes, one.inodes + 4);
    }
}
