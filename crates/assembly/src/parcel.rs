//! The thread that puts a layer together of what is here and what comes.
//!
//! It waits for contents that come, reads those that are here, and passes the layer's bytes on. Both ways are short queues, so it keeps
//! nothing, and it ends as soon as one of the two is closed.

use std::collections::HashMap;
use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc::{Receiver, Sender};
use xebec_recipe::{ChunkId, Recipe};

use crate::apart::Written;
use crate::assemble::{AssemblyError, Materials, assemble};
use crate::plain::unpack;

/// A layer that is put together of what is here and what comes.
pub struct Parcel {
    /// How.
    pub recipe: Recipe,
    /// Which of the sources has a content that was left out.
    pub here: HashMap<ChunkId, usize>,
}

impl Parcel {
    /// Puts the layer together. It waits, so it needs a thread of its own. `read` reads a content of a source, `sent` is the rest of the
    /// parcel, and `to` gets the layer.
    ///
    /// # Errors
    /// [`AssemblyError`]. The reader of the layer's bytes sees an error, too.
    pub fn assemble(
        self,
        read: &dyn Fn(usize, &ChunkId) -> io::Result<Bytes>,
        sent: Receiver<io::Result<Bytes>>,
        to: &Sender<io::Result<Bytes>>,
    ) -> Result<Written, AssemblyError> {
        let assembled = self.work(read, sent, to);
        if let Err(error) = &assembled {
            // Otherwise the reader would take what has come for all there is.
            let _ = to.blocking_send(Err(io::Error::other(error.to_string())));
        }
        assembled
    }

    fn work(
        self,
        read: &dyn Fn(usize, &ChunkId) -> io::Result<Bytes>,
        sent: Receiver<io::Result<Bytes>>,
        to: &Sender<io::Result<Bytes>>,
    ) -> Result<Written, AssemblyError> {
        let Self { recipe, here } = self;
        let begun = Bytes::new();
        let mut contents = unpack(Contents { sent, begun }).map_err(AssemblyError::Contents)?;
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut one = |id: &ChunkId| {
            let source = here.get(id).ok_or(io::ErrorKind::NotFound)?;
            read(*source, id)
        };
        let materials = Materials {
            is_here: &|id| here.contains_key(id),
            here: &mut one,
            sent: &mut contents,
        };
        let mut pass_on = |bytes: Vec<u8>| to.blocking_send(Ok(bytes.into())).map_err(|_| closed());
        let mut go_on = || match to.is_closed() {
            true => Err(closed()),
            false => Ok(()),
        };
        assemble(&recipe, materials, &mut pass_on, &mut go_on)
    }
}

/// Contents as they come.
struct Contents {
    sent: Receiver<io::Result<Bytes>>,
    begun: Bytes,
}

impl Read for Contents {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.begun.is_empty() {
            match self.sent.blocking_recv() {
                Some(piece) => self.begun = piece?,
                None => return Ok(0),
            }
        }
        let length = to.len().min(self.begun.len());
        if let Some(to) = to.get_mut(..length) {
            self.begun.copy_to_slice(to);
        }
        Ok(length)
    }
}
