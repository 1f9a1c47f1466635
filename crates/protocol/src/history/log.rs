//! A log of lines, in two files of bounded size.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Serialize;
use tracing::warn;

/// The first line of each file.
const HEADER: &[u8] = b"{\"xebec_history\":1}\n";
/// Bytes that are written at a time.
const CHUNK: usize = 64 << 10;
/// Longest line; a longer one is left out.
const MAX_LINE: usize = 64 << 10;
/// Most bytes that are read of a file, whatever its size.
const MAX_READ: u64 = 8 << 20;

/// The newer file of a log, and the older one.
fn paths(directory: &Path, name: &str) -> [PathBuf; 2] {
    [format!("{name}.jsonl"), format!("{name}.old.jsonl")].map(|name| directory.join(name))
}

/// A log that is written.
pub struct Log {
    directory: PathBuf,
    name: &'static str,
    /// Most bytes of one file.
    limit: u64,
    file: Option<Opened>,
}

struct Opened {
    file: File,
    inode: u64,
    size: u64,
}

impl Log {
    /// Nothing is opened yet.
    pub fn new(directory: PathBuf, name: &'static str, limit: u64) -> Self {
        Self {
            directory,
            name,
            limit,
            file: None,
        }
    }

    /// Appends entries, each as a line. Lines of a process that ends meanwhile are there whole, or the last one in part.
    ///
    /// # Errors
    /// When the disk is full, or the directory cannot be written to. Then a part of the entries may be there.
    pub fn append(&mut self, entries: &[impl Serialize]) -> io::Result<()> {
        let mut chunk = Vec::new();
        for entry in entries {
            let begin = chunk.len();
            serde_json::to_writer(&mut chunk, entry)?;
            chunk.push(b'\n');
            if chunk.len() - begin > MAX_LINE {
                chunk.truncate(begin);
            }
            if chunk.len() >= CHUNK {
                self.write(&chunk)?;
                chunk.clear();
            }
        }
        match chunk.is_empty() {
            true => Ok(()),
            false => self.write(&chunk),
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let [newer, older] = paths(&self.directory, self.name);
        let length = lines.len() as u64;
        let mut opened = self.open(&newer)?;
        if opened.size + length > self.limit && opened.size > HEADER.len() as u64 {
            drop(opened);
            fs::rename(&newer, &older)?;
            opened = self.open(&newer)?;
        }
        // Opened anew after a failure: the last line may be there in part.
        opened.file.write_all(lines)?;
        opened.size += length;
        self.file = Some(opened);
        Ok(())
    }

    /// The newer file, ready to be appended to. Anything else under its name is set aside.
    fn open(&mut self, path: &Path) -> io::Result<Opened> {
        let is_there = |opened: &Opened| fs::symlink_metadata(path).is_ok_and(|at| at.ino() == opened.inode);
        if let Some(opened) = self.file.take().filter(is_there) {
            return Ok(opened);
        }
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        if let Some(opened) = open_own(path)? {
            return Ok(opened);
        }
        let aside = self.directory.join(format!("{}.damaged", self.name));
        warn!(
            "{} is no history of Xebec's; it is now {}",
            path.display(),
            aside.display()
        );
        fs::rename(path, &aside)?;
        open_own(path)?.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// Opens a file to append to it, and begins it if it is empty; `None` if it is something else.
fn open_own(path: &Path) -> io::Result<Option<Opened>> {
    // No link is followed, and no FIFO waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = match OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits() as i32)
        .open(path)
    {
        Ok(file) => file,
        // A path that cannot be written to is no file of the history, if it is no regular file.
        Err(error) => {
            return match fs::symlink_metadata(path) {
                Ok(found) if !found.is_file() => Ok(None),
                _ => Err(error),
            };
        }
    };
    let status = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !status.is_file() || status.uid() != own || status.mode() & 0o077 != 0 {
        return Ok(None);
    }
    let mut size = status.len();
    if size == 0 {
        file.write_all(HEADER)?;
        size = HEADER.len() as u64;
    } else {
        let mut header = [0; HEADER.len()];
        if file.read_exact_at(&mut header, 0).is_err() || header != *HEADER {
            return Ok(None);
        }
        let mut last = [0];
        file.read_exact_at(&mut last, size - 1)?;
        if last != *b"\n" {
            // A process that was killed left a part of a line. The line is ended, and readers pass over it.
            file.write_all(b"\n")?;
            size += 1;
        }
    }
    let inode = status.ino();
    Ok(Some(Opened { file, inode, size }))
}

/// The lines of a log, the oldest first, without a last one that is there in part.
pub(super) fn read(directory: &Path, name: &str) -> Vec<Vec<u8>> {
    let [newer, older] = paths(directory, name);
    let texts = [older, newer].map(|path| read_file(&path).unwrap_or_default());
    let mut lines = Vec::new();
    for text in texts {
        let Some(rest) = text.strip_prefix(HEADER) else {
            continue;
        };
        let whole = rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        let rest = rest.get(..whole).unwrap_or_default();
        let found = rest.split(|byte| *byte == b'\n');
        lines.extend(found.filter(|line| !line.is_empty()).map(<[u8]>::to_vec));
    }
    lines
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    file.take(MAX_READ).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
