//! A tar stream into which files are copied.

use std::io::{self, Read, Write};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::entry::{Content, Entry, Kind, Sink, Skipped};
use super::error::CopyError;

/// A tar stream that is written.
pub(super) struct TarSink<W: Write>(Builder<W>);

impl<W: Write> TarSink<W> {
    pub(super) fn new(to: W) -> Self {
        Self(Builder::new(to))
    }

    /// Ends the stream.
    pub(super) fn finish(self) -> Result<(), CopyError> {
        let ended = self.0.into_inner().and_then(|mut to| to.flush());
        ended.map_err(CopyError::WriteTar)
    }

    fn write(&mut self, header: &mut Header, path: &Path, kind: Kind<'_>) -> io::Result<()> {
        let mut append = |header: &mut Header, kind, size, from: &mut dyn Read| {
            header.set_entry_type(kind);
            header.set_size(size);
            self.0.append_data(header, path, from)
        };
        let nothing = &mut io::empty();
        match kind {
            Kind::Directory => append(header, EntryType::Directory, 0, nothing),
            Kind::Fifo => append(header, EntryType::Fifo, 0, nothing),
            Kind::Device { is_block, number } => {
                header.set_device_major(number.0)?;
                header.set_device_minor(number.1)?;
                let kind = if is_block {
                    EntryType::Block
                } else {
                    EntryType::Char
                };
                append(header, kind, 0, nothing)
            }
            Kind::File(Content::File(file, size)) => append(
                header,
                EntryType::Regular,
                size,
                &mut Exactly {
                    from: file,
                    left: size,
                },
            ),
            // The size stands before the contents, and a stream does not tell it.
            Kind::File(Content::Stream(_)) => Err(io::ErrorKind::Unsupported.into()),
            Kind::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                self.0.append_link(header, path, target)
            }
            Kind::Same(first) => {
                header.set_entry_type(EntryType::Link);
                header.set_size(0);
                self.0.append_link(header, path, first)
            }
        }
    }
}

impl<W: Write> Sink for TarSink<W> {
    fn add(&mut self, entry: Entry<'_, '_>) -> Result<Option<Skipped>, CopyError> {
        let Entry { path, meta, kind } = entry;
        let mut header = Header::new_gnu();
        header.set_mode(meta.mode);
        header.set_uid(meta.uid.into());
        header.set_gid(meta.gid.into());
        header.set_mtime(u64::try_from(meta.modified.0).unwrap_or_default());
        self.write(&mut header, path, kind).map_err(CopyError::WriteTar)?;
        Ok(None)
    }
}

/// Reads so many bytes, zeros if there are no more: the size of a file stands before its contents, and a file
/// may become shorter meanwhile.
struct Exactly<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..room).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let length = match self.from.read(buffer)? {
            0 => {
                buffer.fill(0);
                room
            }
            length => length,
        };
        self.left -= length as u64;
        Ok(length)
    }
}
