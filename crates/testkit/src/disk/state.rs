//! Files, directories and names of a disk in memory, as programs see them and as they are certain to be.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::SystemTime;

use fastrand::Rng;

/// Number of an inode: its place in [`State::inodes`].
pub(super) type Inode = usize;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) inodes: Vec<Node>,
    /// Changes to names that no sync covered, in order.
    pub(super) names: Vec<NameChange>,
    pub(super) ignored: Vec<String>,
    /// The state before each change, if they are recorded.
    pub(super) history: Option<Vec<State>>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File {
        seen: Arc<Vec<u8>>,
        synced: Arc<Vec<u8>>,
        changes: Vec<Arc<Change>>,
        modified: SystemTime,
    },
    Directory {
        seen: BTreeMap<String, Inode>,
        synced: BTreeMap<String, Inode>,
    },
}

/// A change to a file.
#[derive(Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
    Punch(Range<u64>),
}

/// A name in a directory.
type Place = (Inode, String);

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Link { place: Place, inode: Inode },
    Unlink { place: Place },
    Rename { from: Place, to: Place, inode: Inode },
}

impl NameChange {
    fn touches(&self, directory: Inode) -> bool {
        match self {
            Self::Link { place, .. } | Self::Unlink { place } => place.0 == directory,
            Self::Rename { from, to, .. } => from.0 == directory || to.0 == directory,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        let root = Node::Directory {
            seen: BTreeMap::new(),
            synced: BTreeMap::new(),
        };
        Self {
            inodes: vec![root],
            names: Vec::new(),
            ignored: Vec::new(),
            history: None,
        }
    }
}

impl Node {
    /// An empty file.
    pub(super) fn file() -> Self {
        Self::File {
            seen: Arc::default(),
            synced: Arc::default(),
            changes: Vec::new(),
            modified: SystemTime::now(),
        }
    }

    pub(super) fn after_cut(&self, luck: f64, block: u64, random: &mut Rng) -> Self {
        let Self::File {
            synced,
            changes,
            modified,
            ..
        } = self
        else {
            return self.clone();
        };
        let mut bytes = synced.as_ref().clone();
        for change in changes {
            for part in change.blocks(block) {
                if random.f64() < luck {
                    part.apply(&mut bytes);
                }
            }
        }
        let bytes = Arc::new(bytes);
        Self::File {
            seen: bytes.clone(),
            synced: bytes,
            changes: Vec::new(),
            modified: *modified,
        }
    }
}

impl Change {
    /// The parts that reach the disk by themselves: blocks that start at multiples of their size.
    fn blocks(&self, block: u64) -> Vec<Change> {
        let cut = |range: Range<u64>| {
            let mut parts = Vec::new();
            let mut start = range.start;
            while start < range.end {
                let end = ((start / block + 1) * block).min(range.end);
                parts.push(start..end);
                start = end;
            }
            parts
        };
        match self {
            Self::Length(length) => vec![Self::Length(*length)],
            Self::Punch(range) => cut(range.clone()).into_iter().map(Self::Punch).collect(),
            Self::Write { offset, bytes } => cut(*offset..*offset + bytes.len() as u64)
                .into_iter()
                .map(|part| Self::Write {
                    offset: part.start,
                    bytes: bytes[(part.start - offset) as usize..(part.end - offset) as usize].to_vec(),
                })
                .collect(),
        }
    }

    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Length(length) => contents.resize(*length as usize, 0),
            Self::Punch(range) => {
                let end = (range.end as usize).min(contents.len());
                let start = (range.start as usize).min(end);
                contents[start..end].fill(0);
            }
            Self::Write { offset, bytes } => {
                let (start, end) = (*offset as usize, *offset as usize + bytes.len());
                if contents.len() < end {
                    contents.resize(end, 0);
                }
                contents[start..end].copy_from_slice(bytes);
            }
        }
    }
}

impl State {
    pub(super) fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = 0;
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            let Some(Node::Directory { seen, .. }) = self.inodes.get(inode) else {
                return Err(io::ErrorKind::NotADirectory.into());
            };
            let next = seen.get(name.to_string_lossy().as_ref());
            inode = *next.ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    pub(super) fn place(&self, path: &Path) -> io::Result<Place> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok((self.find(parent)?, name.to_string_lossy().into_owned()))
    }

    pub(super) fn entries(&mut self, directory: Inode) -> io::Result<&mut BTreeMap<String, Inode>> {
        match self.inodes.get_mut(directory) {
            Some(Node::Directory { seen, .. }) => Ok(seen),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn add(&mut self, place: Place, node: Node) -> io::Result<Inode> {
        let inode = self.inodes.len();
        self.inodes.push(node);
        self.entries(place.0)?.insert(place.1.clone(), inode);
        self.names.push(NameChange::Link { place, inode });
        Ok(inode)
    }

    pub(super) fn unlink(&mut self, place: Place) -> io::Result<()> {
        let removed = self.entries(place.0)?.remove(&place.1);
        removed.ok_or(io::ErrorKind::NotFound)?;
        self.names.push(NameChange::Unlink { place });
        Ok(())
    }

    /// Makes a change to names certain.
    pub(super) fn apply(&mut self, change: &NameChange) {
        let mut put = |place: &Place, inode: Option<Inode>| {
            if let Some(Node::Directory { synced, .. }) = self.inodes.get_mut(place.0) {
                match inode {
                    Some(inode) => drop(synced.insert(place.1.clone(), inode)),
                    None => drop(synced.remove(&place.1)),
                }
            }
        };
        match change {
            NameChange::Link { place, inode } => put(place, Some(*inode)),
            NameChange::Unlink { place } => put(place, None),
            NameChange::Rename { from, to, inode } => {
                put(from, None);
                put(to, Some(*inode));
            }
        }
    }

    pub(super) fn sync_directory(&mut self, directory: Inode) {
        let (covered, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.names)
            .into_iter()
            .partition(|change| change.touches(directory));
        covered.iter().for_each(|change| self.apply(change));
        // A name that a certain rename took away cannot come back by an older link.
        let renamed: Vec<&Place> = covered
            .iter()
            .filter_map(|change| match change {
                NameChange::Rename { from, .. } => Some(from),
                _ => None,
            })
            .collect();
        self.names = left
            .into_iter()
            .filter(|change| !matches!(change, NameChange::Link { place, .. } if renamed.contains(&place)))
            .collect();
    }

    pub(super) fn edit(&mut self, inode: Inode, change: Change) {
        if let Some(Node::File {
            seen,
            changes,
            modified,
            ..
        }) = self.inodes.get_mut(inode)
        {
            change.apply(Arc::make_mut(seen));
            changes.push(Arc::new(change));
            *modified = SystemTime::now();
        }
    }
}
