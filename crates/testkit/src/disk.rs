//! A disk in memory whose power can be cut at any step: what was not synced may be lost, in any part and any order.
//!
//! It keeps what programs see and what is certain to be on the disk. [`CrashingDisk::after_power_cut`] makes the disk that a reboot
//! finds. Of the writes, holes and lengths that no sync covered, some blocks are there and some are not. Of the changes to names that no
//! directory sync covered, some are there and some are not. It is less kind than a real file system, which commits names in order:
//! programs that survive it survive those.
//!
//! To prove that a test notices, syncs of chosen files can be left out: [`CrashingDisk::ignore_syncs_of`].

mod state;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use xebec_cache::disk::{Access, Disk, DiskFile};
use xebec_kernel::file::FileIdentity;

use state::{Change, Inode, NameChange, Node, State};

/// A file system in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct CrashingDisk {
    state: Arc<Mutex<State>>,
}

impl CrashingDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Syncs of files of this name succeed and do nothing, as if the program had left them out.
    pub fn ignore_syncs_of(&self, name: &str) {
        self.state.lock().ignored.push(name.to_owned());
    }

    /// From now on keeps a disk for each step: what was there just before each change.
    pub fn record(&self) {
        self.state.lock().history = Some(Vec::new());
    }

    /// The disks that were kept, one for each step, and the last one is what is there now.
    pub fn steps(&self) -> Vec<CrashingDisk> {
        let mut state = self.state.lock();
        let mut steps = state.history.take().unwrap_or_default();
        steps.push(state.clone());
        steps.into_iter().map(Self::of).collect()
    }

    /// The disk that the next process finds when only the process has died: everything that was done is there.
    pub fn after_kill(&self) -> CrashingDisk {
        Self::of(self.state.lock().clone())
    }

    /// The disk that a reboot finds after a power cut.
    pub fn after_power_cut(&self, random: &mut Rng) -> CrashingDisk {
        let state = self.state.lock().clone();
        // Now and then everything or nothing was written back: those are the states that really are common.
        let luck = *random.choice(&[0.0, 0.2, 0.5, 0.8, 1.0]).unwrap_or(&0.5);
        let block = if random.bool() { 512 } else { 4096 };
        let nodes = state.inodes.iter();
        let mut after = State {
            inodes: nodes.map(|node| node.after_cut(luck, block, random)).collect(),
            ..State::default()
        };
        for change in &state.names {
            if random.f64() < luck {
                after.apply(change);
            }
        }
        for node in &mut after.inodes {
            if let Node::Directory { seen, synced } = node {
                seen.clone_from(synced);
            }
        }
        Self::of(after)
    }

    fn of(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The state, about to be changed.
    fn change(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if let Some(mut history) = state.history.take() {
            history.push(state.clone());
            state.history = Some(history);
        }
        state
    }
}

impl Disk for CrashingDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let found = self.state.lock().find(path);
        let inode = match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound && access == Access::Create => {
                let mut state = self.change();
                let place = state.place(path)?;
                state.add(place, Node::file())?
            }
            other => other?,
        };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Arc::new(CrashingFile {
            disk: self.clone(),
            inode,
            name,
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        match state.inodes.get(state.find(path)?) {
            Some(Node::File { seen, .. }) => Ok(seen.as_ref().clone()),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        for directory in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
            if self.exists(directory) {
                continue;
            }
            let mut state = self.change();
            let place = state.place(directory)?;
            let node = Node::Directory {
                seen: BTreeMap::new(),
                synced: BTreeMap::new(),
            };
            state.add(place, node)?;
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change();
        let (inode, from, to) = (state.find(from)?, state.place(from)?, state.place(to)?);
        let target = state.entries(to.0)?.get(&to.1).copied();
        if let Some(Node::Directory { seen, .. }) = target.and_then(|target| state.inodes.get(target))
            && !seen.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.entries(from.0)?.remove(&from.1);
        state.entries(to.0)?.insert(to.1.clone(), inode);
        state.names.push(NameChange::Rename { from, to, inode });
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change();
        let place = state.place(path)?;
        state.unlink(place)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.remove_file(path)
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        for name in self.list(path)? {
            let child = path.join(name);
            match self.list(&child) {
                Ok(_) => self.remove_all(&child)?,
                Err(_) => self.remove_file(&child)?,
            }
        }
        self.remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change();
        let directory = state.find(path)?;
        state.sync_directory(directory);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        let directory = state.find(path)?;
        Ok(state.entries(directory)?.keys().cloned().collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.state.lock().find(path).is_ok()
    }

    fn modified(&self, path: &Path) -> io::Result<SystemTime> {
        let state = self.state.lock();
        match state.inodes.get(state.find(path)?) {
            Some(Node::File { modified, .. }) => Ok(*modified),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn set_modified(&self, path: &Path, time: SystemTime) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.find(path)?;
        if let Some(Node::File { modified, .. }) = state.inodes.get_mut(inode) {
            *modified = time;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct CrashingFile {
    disk: CrashingDisk,
    inode: Inode,
    name: String,
}

impl CrashingFile {
    fn contents(&self) -> Arc<Vec<u8>> {
        match self.disk.state.lock().inodes.get(self.inode) {
            Some(Node::File { seen, .. }) => seen.clone(),
            _ => Arc::default(),
        }
    }
}

impl DiskFile for CrashingFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let contents = self.contents();
        let start = offset as usize;
        let part = contents.get(start..start + bytes.len());
        bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let bytes = bytes.to_vec();
        self.disk
            .change()
            .edit(self.inode, Change::Write { offset, bytes });
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.disk.change().edit(self.inode, Change::Length(length));
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        self.disk.change().edit(self.inode, Change::Punch(range));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.change();
        if state.ignored.contains(&self.name) {
            return Ok(());
        }
        if let Some(Node::File {
            seen,
            synced,
            changes,
            ..
        }) = state.inodes.get_mut(self.inode)
        {
            *synced = seen.clone();
            changes.clear();
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.contents().len() as u64)
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity {
            device: 0,
            inode: self.inode as u64,
        })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
