//! Sums of what a layer has so far, against the limits of what reads it. A layer that Xebec itself could not index would be no use.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use xebec_format::layer::{self, Extent, Xattr};

use crate::error::CommitError;
use crate::limits::{
    CLAIMED_TIMES, LINKED, MAX_DATA, MAX_ENTRIES, MAX_LINKED, MAX_PATH, MAX_PATH_BYTES, MAX_TREE,
    MAX_XATTR_BYTES, MAY_BE_SPARSE, PAGE,
};
use crate::tar::{Entry, Kind};

/// The sums, all but the counts in bytes.
#[derive(Debug, Default)]
pub(crate) struct Measure {
    entries: u64,
    left_out: u64,
    paths: u64,
    xattrs: u64,
    tree: u64,
    data: u64,
    claimed: u64,
    held: u64,
    linked: usize,
}

impl Measure {
    /// Counts an entry.
    pub(crate) fn entry(&mut self, entry: &Entry<'_>) -> Result<(), CommitError> {
        check_path(entry.path)?;
        let (of_kind, data) = match entry.kind {
            Kind::File(0) => (0, 0),
            Kind::File(size) => (size_of::<Extent>(), size.div_ceil(PAGE).saturating_mul(PAGE)),
            Kind::Symlink(target) | Kind::Link(target) => (target.len(), 0),
            Kind::Directory | Kind::Fifo | Kind::Character(..) | Kind::Block(..) => (0, 0),
        };
        let xattrs: usize = entry
            .xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let memory = size_of::<layer::Entry>() + entry.path.len() + of_kind;
        let memory = memory + xattrs + entry.xattrs.len() * size_of::<Xattr>();
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(CommitError::TooMany);
        }
        let sums = [
            ("paths", &mut self.paths, entry.path.len() as u64, MAX_PATH_BYTES),
            (
                "extended attributes",
                &mut self.xattrs,
                xattrs as u64,
                MAX_XATTR_BYTES,
            ),
            ("contents", &mut self.data, data, MAX_DATA),
            (
                "paths, links and attributes",
                &mut self.tree,
                memory as u64,
                MAX_TREE,
            ),
        ];
        for (what, sum, more, limit) in sums {
            *sum = sum.saturating_add(more);
            if *sum > limit {
                return Err(CommitError::TooMuch { what, limit });
            }
        }
        Ok(())
    }

    /// Counts a file that is left out.
    pub(crate) fn left_out(&mut self) -> Result<(), CommitError> {
        self.left_out += 1;
        match self.left_out > MAX_ENTRIES {
            true => Err(CommitError::TooMany),
            false => Ok(()),
        }
    }

    /// Counts what a file claims, and what it has on the disk, both in bytes.
    pub(crate) fn claim(&mut self, claimed: u64, held: u64, shown: &Path) -> Result<(), CommitError> {
        self.claimed = self.claimed.saturating_add(claimed);
        self.held = self.held.saturating_add(held);
        match self.claimed > MAY_BE_SPARSE.saturating_add(self.held.saturating_mul(CLAIMED_TIMES)) {
            true => Err(CommitError::Sparse {
                path: shown.to_owned(),
                claimed: self.claimed,
                held: self.held,
            }),
            false => Ok(()),
        }
    }

    /// Counts the path of a file with several names, which stays in memory.
    pub(crate) fn linked(&mut self, path: &[u8]) -> Result<(), CommitError> {
        self.linked += path.len() + LINKED;
        match self.linked > MAX_LINKED {
            true => Err(CommitError::TooManyLinks),
            false => Ok(()),
        }
    }
}

/// Refuses a path that no layer can have. A directory's slash does not count.
pub(crate) fn check_path(path: &[u8]) -> Result<(), CommitError> {
    match path.strip_suffix(b"/").unwrap_or(path).len() > MAX_PATH {
        true => Err(CommitError::PathTooLong(OsStr::from_bytes(path).into())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Attributes = [(Vec<u8>, Vec<u8>)];

    fn entry<'a>(path: &'a [u8], kind: Kind<'a>, xattrs: &'a Attributes) -> Entry<'a> {
        Entry {
            path,
            kind,
            mode: 0o644,
            owner: (0, 0),
            modified: (0, 0),
            xattrs,
        }
    }

    /// How many such entries a layer can have, and what is said of one more.
    fn fits(path: &[u8], kind: Kind<'_>, xattrs: &Attributes) -> (u64, String) {
        let mut measure = Measure::default();
        for count in 0..=MAX_ENTRIES {
            if let Err(error) = measure.entry(&entry(path, kind, xattrs)) {
                return (count, error.to_string());
            }
        }
        (MAX_ENTRIES + 1, String::new())
    }

    #[test]
    fn sums_have_the_limits_of_an_index() {
        let long = vec![b'a'; MAX_PATH];
        let xattrs = [(b"user.a".to_vec(), vec![0; 64 << 10])];
        let target = vec![b'b'; 4095];
        for (path, kind, xattrs, wanted, said) in [
            (&b"a"[..], Kind::Fifo, &[][..], MAX_ENTRIES, "files"),
            (
                &long,
                Kind::Fifo,
                &[],
                MAX_PATH_BYTES / MAX_PATH as u64,
                "of paths,",
            ),
            (
                b"a",
                Kind::File(0),
                &xattrs,
                MAX_XATTR_BYTES / (6 + (64 << 10)),
                "attributes,",
            ),
            (b"a", Kind::File(1 << 40), &[], MAX_DATA >> 40, "contents"),
            (b"a", Kind::File((1 << 40) - 1), &[], MAX_DATA >> 40, "contents"),
        ] {
            let (count, error) = fits(path, kind, xattrs);
            assert_eq!(count, wanted, "{error}");
            assert!(error.contains(said), "{error}");
        }
        let (count, error) = fits(b"a", Kind::Symlink(&target), &[]);
        assert!(count < MAX_TREE / 4096 && count > MAX_TREE / 5000, "{count}");
        assert!(error.contains("links"), "{error}");
    }

    #[test]
    fn holes_of_many_files_count_together() {
        let mut measure = Measure::default();
        let mut claim = |claimed, held| measure.claim(claimed, held, Path::new("file"));
        assert!(claim(MAY_BE_SPARSE, 0).is_ok());
        assert!(claim(1 << 20, 1 << 12).is_ok());
        assert!(matches!(claim(1, 0), Err(CommitError::Sparse { .. })));
        let mut measure = Measure::default();
        assert!(measure.claim(1 << 43, 0, Path::new("file")).is_err());
    }

    #[test]
    fn files_with_several_names_take_no_more_memory_than_others() {
        let mut measure = Measure::default();
        let path = vec![b'a'; MAX_PATH];
        let most = MAX_LINKED / (MAX_PATH + LINKED);
        assert!((0..most).all(|_| measure.linked(&path).is_ok()));
        assert!(matches!(measure.linked(&path), Err(CommitError::TooManyLinks)));
    }
}
