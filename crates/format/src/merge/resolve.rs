//! Finds the directory that a path leads to, following symbolic links inside the root.
//!
//! As in containerd (`continuity/fs.RootPath`), a link's target is taken from the image's root when it is absolute, and
//! `..` never leads above the root. Names that do not exist yet are taken as they are. A path may lead through 255 links
//! at most. `..` after a link goes to the parent of where the link led, as in the kernel.

use std::borrow::Cow;

use super::{Directory, IMPLIED, MAX_IMPLIED, Merge, MergeError, Node, NodeId, NodeKind, ROOT};
use crate::layer::{Entry, EntryKind};

/// Most symbolic links on one path (containerd's limit).
const MAX_LINKS: u32 = 255;

/// Where a path leads: existing directories from the root down, then names that are no directories there (the first
/// may be that of a file, the others do not exist).
struct Place<'a> {
    existing: Vec<NodeId>,
    missing: Vec<&'a [u8]>,
}

impl<'a> Merge<'a> {
    /// The directory at `path`, made with its parents where it does not exist.
    pub(super) fn resolve(&mut self, entry: &'a Entry, path: &'a [u8]) -> Result<NodeId, MergeError> {
        let place = match self.walk_plain(path) {
            Some(found) => return Ok(found),
            None => self.walk(entry, path)?,
        };
        let mut at = place.existing.last().copied().unwrap_or(ROOT);
        if let Some(first) = place.missing.first()
            && self.child(at, first).is_some()
        {
            return Err(MergeError::ParentNotDirectory {
                layer: self.digest,
                path: entry.path.clone(),
                parent: first.escape_ascii().to_string(),
            });
        }
        for name in place.missing {
            self.implied += 1;
            if self.implied > MAX_IMPLIED {
                return Err(MergeError::TooManyImplied);
            }
            let node = self.add(Node {
                metadata: Cow::Borrowed(&IMPLIED),
                kind: NodeKind::Directory(Directory::default()),
            })?;
            self.put(at, name, node);
            at = node;
        }
        Ok(at)
    }

    /// As [`Merge::resolve`], remembering the last answer.
    pub(super) fn resolve_parent(&mut self, entry: &'a Entry, path: &'a [u8]) -> Result<NodeId, MergeError> {
        if let Some((last, node)) = self.last_parent
            && last == path
        {
            return Ok(node);
        }
        let node = self.resolve(entry, path)?;
        self.last_parent = Some((path, node));
        Ok(node)
    }

    /// The directory at `path` if it exists.
    pub(super) fn resolve_existing(
        &mut self,
        entry: &'a Entry,
        path: &'a [u8],
    ) -> Result<Option<NodeId>, MergeError> {
        if let Some(found) = self.walk_plain(path) {
            return Ok(Some(found));
        }
        let place = self.walk(entry, path)?;
        Ok(place
            .existing
            .last()
            .copied()
            .filter(|_| place.missing.is_empty()))
    }

    /// The common case: every name on the way is a directory that exists.
    fn walk_plain(&self, path: &[u8]) -> Option<NodeId> {
        let mut at = ROOT;
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            at = self.child(at, name)?.node;
            self.directory(at)?;
        }
        Some(at)
    }

    fn walk(&mut self, entry: &'a Entry, path: &'a [u8]) -> Result<Place<'a>, MergeError> {
        let mut place = Place {
            existing: vec![ROOT],
            missing: Vec::new(),
        };
        // The names that are still to be walked, the next one last.
        let mut rest: Vec<&'a [u8]> = path.split(|&b| b == b'/').rev().collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            match name {
                b"" | b"." => continue,
                b".." => {
                    place.up();
                    continue;
                }
                _ => {}
            }
            let at = place.existing.last().copied().unwrap_or(ROOT);
            let next = match place.missing.is_empty() {
                true => self.child(at, name),
                false => None,
            };
            let Some(next) = next else {
                place.missing.push(name);
                continue;
            };
            match &self.node(next.node).kind {
                NodeKind::Directory(_) => place.existing.push(next.node),
                &NodeKind::Other(EntryKind::Symlink { target }, _) => {
                    links += 1;
                    self.follow(entry, links, target, &mut place, &mut rest)?;
                }
                // Unpackers take `..` after a file's name back without looking, so it is an error only at the end.
                NodeKind::Other(..) => place.missing.push(name),
            }
        }
        Ok(place)
    }

    /// Puts a link's target before what is still to be walked.
    fn follow(
        &mut self,
        entry: &Entry,
        links: u32,
        target: &'a [u8],
        place: &mut Place<'a>,
        rest: &mut Vec<&'a [u8]>,
    ) -> Result<(), MergeError> {
        if links > MAX_LINKS {
            return Err(MergeError::SymlinkLoop {
                layer: self.digest,
                path: entry.path.clone(),
            });
        }
        if target.starts_with(b"/") {
            place.existing.truncate(1);
        }
        let before = rest.len();
        rest.extend(target.split(|&b| b == b'/').rev());
        let names = (rest.len() - before) as u64;
        self.work_left = self
            .work_left
            .checked_sub(names)
            .ok_or(MergeError::TooMuchWork(self.digest))?;
        Ok(())
    }
}

impl Place<'_> {
    /// One directory up; from the root nowhere.
    fn up(&mut self) {
        if self.missing.pop().is_none() && self.existing.len() > 1 {
            self.existing.pop();
        }
    }
}
