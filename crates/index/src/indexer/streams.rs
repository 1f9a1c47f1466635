//! The second thread: hashes the blob and the plain stream, and compresses windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use xebec_format::digest::{Digest, Digester};

use super::IndexError;
use super::scan::ToStreams;

/// Level at which windows are compressed: beyond it they take much longer and shrink by little.
const WINDOW_LEVEL: i32 = 6;

/// The result of the second thread.
pub(super) struct Streams {
    pub(super) layer: Digest,
    pub(super) layer_size: u64,
    pub(super) diff_id: Digest,
    /// Compressed histories, by number.
    pub(super) windows: Vec<Vec<u8>>,
}

pub(super) struct StreamsThread {
    layer: Digester,
    layer_size: u64,
    plain: Digester,
    windows: Vec<Vec<u8>>,
    /// Bytes of all these, for the thread that tells what is held.
    held: Arc<AtomicU64>,
}

impl StreamsThread {
    pub(super) fn new(held: Arc<AtomicU64>) -> Self {
        Self {
            layer: Digester::new(),
            layer_size: 0,
            plain: Digester::new(),
            windows: Vec::new(),
            held,
        }
    }

    pub(super) fn run(mut self, from_scan: &Receiver<ToStreams>) -> Result<Streams, IndexError> {
        let mut compressor = zstd::bulk::Compressor::new(WINDOW_LEVEL).map_err(IndexError::Compress)?;
        for message in from_scan {
            match message {
                ToStreams::Blob(bytes) => {
                    self.layer.update(&bytes);
                    self.layer_size += bytes.len() as u64;
                }
                ToStreams::Plain(chunk, pool) => {
                    self.plain.update(chunk.bytes());
                    pool.give_back(chunk);
                }
                ToStreams::History(bytes) => {
                    let window = compressor.compress(&bytes).map_err(IndexError::Compress)?;
                    self.held.fetch_add(window.len() as u64, Ordering::Relaxed);
                    self.windows.push(window);
                }
            }
        }
        Ok(Streams {
            layer: self.layer.finish(),
            layer_size: self.layer_size,
            diff_id: self.plain.finish(),
            windows: self.windows,
        })
    }
}
