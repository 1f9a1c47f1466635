//! A tar stream as the source of a copy.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use tar::{Archive, EntryType, Header};

use super::entry::{Content, Entry, Kind, Meta, Note, Sink, Skipped};
use super::error::CopyError;

/// Passes the entries of a tar stream to a sink.
pub(super) fn read(
    from: impl Read,
    sink: &mut dyn Sink,
    on_note: &mut dyn FnMut(Note),
) -> Result<(), CopyError> {
    let mut archive = Archive::new(from);
    for entry in archive.entries().map_err(CopyError::ReadTar)? {
        let mut entry = entry.map_err(CopyError::ReadTar)?;
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            continue;
        }
        let path = below(&entry.path_bytes())?;
        // The directory itself.
        if path.as_os_str().is_empty() {
            continue;
        }
        let meta = meta(entry.header()).map_err(CopyError::ReadTar)?;
        let target = entry.link_name_bytes().map(|bytes| bytes.into_owned());
        let target = target.unwrap_or_default();
        let first = match kind {
            EntryType::Link => below(&target)?,
            _ => PathBuf::new(),
        };
        let kind = match kind {
            EntryType::Directory => Some(Kind::Directory),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                Some(Kind::File(Content::Stream(&mut entry)))
            }
            EntryType::Symlink => Some(Kind::Link(OsStr::from_bytes(&target))),
            EntryType::Link => Some(Kind::Same(&first)),
            EntryType::Fifo => Some(Kind::Fifo),
            EntryType::Char | EntryType::Block => Some(Kind::Device {
                is_block: kind == EntryType::Block,
                number: (0, 0),
            }),
            _ => None,
        };
        let skipped = match kind {
            Some(kind) => sink.add(Entry {
                path: &path,
                meta,
                kind,
            })?,
            None => Some(Skipped::Unknown),
        };
        if let Some(reason) = skipped {
            on_note(Note { path, reason });
        }
    }
    Ok(())
}

fn meta(header: &Header) -> io::Result<Meta> {
    let number = |value: u64| u32::try_from(value).map_err(|_| io::ErrorKind::InvalidData.into());
    Ok(Meta {
        mode: header.mode()? & 0o7777,
        uid: header.uid().and_then(number)?,
        gid: header.gid().and_then(number)?,
        modified: (i64::try_from(header.mtime()?).unwrap_or(i64::MAX), 0),
    })
}

/// The path of an entry below the destination.
fn below(bytes: &[u8]) -> Result<PathBuf, CopyError> {
    let path = Path::new(OsStr::from_bytes(bytes));
    let mut below = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if !name.as_bytes().contains(&0) => below.push(name),
            Component::CurDir | Component::RootDir => {}
            _ => return Err(CopyError::Escaping(path.to_owned())),
        }
    }
    Ok(below)
}
