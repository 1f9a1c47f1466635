//! Pieces of files, read into buffers that are used again and again: making and clearing one takes as long as filling it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::{ReadWriteFlags, preadv2};

/// So many bytes are read at once. Each reader holds a few pieces of this size.
const PIECE: usize = 64 << 10;
/// So many buffers are kept while nobody uses them.
const MOST_IDLE: usize = 32;

/// Buffers that nobody uses now.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Box<[u8]>>>);

/// A buffer while it holds a piece. When the last sender of the piece has dropped it, the buffer goes back.
struct Lent {
    buffer: Box<[u8]>,
    length: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}

impl Buffers {
    fn take(&self) -> Box<[u8]> {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| vec![0; PIECE].into_boxed_slice())
    }

    fn give_back(&self, buffer: Box<[u8]>) {
        let mut idle = self.0.lock();
        if idle.len() < MOST_IDLE {
            idle.push(buffer);
        }
    }

    fn lend(self: &Arc<Self>, buffer: Box<[u8]>, length: usize) -> Bytes {
        Bytes::from_owner(Lent {
            buffer,
            length,
            home: Arc::clone(self),
        })
    }

    /// The first bytes of a range, as many as are in memory; `None` if the disk must be asked first, or the file system knows no such
    /// reads. Does not block.
    pub(super) fn read_cached(self: &Arc<Self>, file: &File, range: &Range<u64>) -> Option<Bytes> {
        let mut buffer = self.take();
        let wanted = length(range);
        let mut slices = [IoSliceMut::new(&mut buffer[..wanted])];
        match preadv2(file, &mut slices, range.start, ReadWriteFlags::NOWAIT) {
            Ok(read) if read > 0 => Some(self.lend(buffer, read)),
            _ => {
                self.give_back(buffer);
                None
            }
        }
    }

    /// The first bytes of a range. Blocks.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter.
    pub(super) fn read(self: &Arc<Self>, file: &File, range: &Range<u64>) -> io::Result<Bytes> {
        let mut buffer = self.take();
        let wanted = length(range);
        match file.read_exact_at(&mut buffer[..wanted], range.start) {
            Ok(()) => Ok(self.lend(buffer, wanted)),
            Err(error) => {
                self.give_back(buffer);
                Err(error)
            }
        }
    }
}

fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).map_or(PIECE, |length| length.min(PIECE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_never_while_somebody_has_it() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..PIECE + 1000).map(|at| (at % 251) as u8).collect();
        io::Write::write_all(&mut file, &content).unwrap();
        let (buffers, end) = (Arc::<Buffers>::default(), content.len() as u64);
        let first = buffers.read(&file, &(0..end)).unwrap();
        // The file system may know no reads from memory alone.
        let rest = buffers.read_cached(&file, &(first.len() as u64..end));
        let rest = rest.unwrap_or_else(|| buffers.read(&file, &(first.len() as u64..end)).unwrap());
        assert_eq!(first, content[..PIECE]);
        assert_eq!(rest, content[PIECE..PIECE + rest.len()]);
        let part = first.slice(10..20);
        drop((first, rest));
        assert_eq!(buffers.0.lock().len(), 1, "a part of a piece is still there");
        assert_eq!(part, content[10..20]);
        drop(part);
        assert_eq!(buffers.0.lock().len(), 2);
    }

    #[test]
    fn a_file_that_is_too_short_costs_no_buffer() {
        let file = tempfile::tempfile().unwrap();
        let buffers = Arc::<Buffers>::default();
        assert!(buffers.read_cached(&file, &(0..10)).is_none());
        let error = buffers.read(&file, &(0..10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(buffers.0.lock().len(), 1);
    }

    #[test]
    fn few_buffers_are_kept() {
        let buffers = Arc::<Buffers>::default();
        let taken: Vec<_> = (0..MOST_IDLE + 5).map(|_| buffers.take()).collect();
        taken.into_iter().for_each(|buffer| buffers.give_back(buffer));
        assert_eq!(buffers.0.lock().len(), MOST_IDLE);
    }
}
