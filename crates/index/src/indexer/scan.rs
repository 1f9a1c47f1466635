//! The first thread: reads the blob, decodes it and marks the points at which decoding can start.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use parking_lot::Mutex;
use xebec_format::layer::Codec;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::detect::open;
use super::{IndexError, IndexOptions};
use crate::gzip::{Event, GzipReader};
use crate::source::Source;

/// Plain bytes handed on at a time.
const CHUNK: usize = 256 << 10;

/// Largest window of a zstd frame, as a power of two: 128 MiB, the default limit of zstd's own tools.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Plain bytes, shared by the threads that hash them.
pub(super) struct Chunk {
    buffer: Vec<u8>,
    range: Range<usize>,
}

impl Chunk {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or_default()
    }
}

/// Buffers that come back from chunks when nobody needs them any more.
#[derive(Clone, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    /// Takes back the buffer of `chunk` if this was its last user.
    pub(super) fn give_back(&self, chunk: Arc<Chunk>) {
        if let Some(chunk) = Arc::into_inner(chunk) {
            self.0.lock().push(chunk.buffer);
        }
    }

    fn take(&self, size: usize) -> Vec<u8> {
        let buffer = self.0.lock().pop();
        buffer
            .filter(|buffer| buffer.len() == size)
            .unwrap_or_else(|| vec![0; size])
    }
}

/// A point at which decoding can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Offset in the blob of the first byte needed.
    pub(super) source: u64,
    /// Bits of it that belong to what comes before.
    pub(super) bit: u8,
    /// Offset in the plain stream.
    pub(super) plain: u64,
    /// Number of the history that is needed, if one is.
    pub(super) history: Option<usize>,
}

/// A message to the second thread.
pub(super) enum ToStreams {
    Blob(Vec<u8>),
    Plain(Arc<Chunk>, Pool),
    /// The next history: they come in the order of [`Point::history`], none left out.
    History(Vec<u8>),
}

/// A message to the third thread.
pub(super) enum ToLayout {
    /// Comes first.
    Start(Codec),
    /// Comes before any plain byte that follows the point.
    Point(Point),
    Plain(Arc<Chunk>, Pool),
    /// Comes last, unless the scan failed: the blob's codec data end at this offset.
    End {
        source: u64,
    },
}

/// The result of the scan.
pub(super) struct Scanned {
    pub(super) codec: Codec,
}

pub(super) struct Scan<'a, R> {
    blob: Tap<R>,
    output: Outlet<'a>,
}

/// The way to the other threads.
struct Outlet<'a> {
    options: &'a IndexOptions,
    streams: SyncSender<ToStreams>,
    layout: SyncSender<ToLayout>,
    pool: Pool,
    plain: u64,
    /// Plain offset of the last point; `None` before the first.
    last_point: Option<u64>,
    histories: usize,
}

/// Why the scan stopped when another thread has gone; that thread's error is the one that is reported.
fn stopped<T>(_: T) -> IndexError {
    IndexError::Thread("it ended before the layer did".into())
}

impl<'a, R: Read> Scan<'a, R> {
    pub(super) fn new(
        blob: R,
        options: &'a IndexOptions,
        streams: SyncSender<ToStreams>,
        layout: SyncSender<ToLayout>,
    ) -> Self {
        let blob = Tap {
            reader: blob,
            streams: streams.clone(),
        };
        let output = Outlet {
            options,
            streams,
            layout,
            pool: Pool::default(),
            plain: 0,
            last_point: None,
            histories: 0,
        };
        Self { blob, output }
    }

    pub(super) fn run(self) -> Result<Scanned, IndexError> {
        let Self { blob, mut output } = self;
        let (source, codec) = open(blob)?;
        output.tell(ToLayout::Start(codec))?;
        let end = match codec {
            Codec::Gzip | Codec::Estargz => scan_gzip(source, &mut output)?,
            Codec::Zstd | Codec::ZstdChunked => scan_zstd(source, &mut output)?,
            Codec::Tar => scan_tar(source, &mut output)?,
        };
        output.tell(ToLayout::End { source: end })?;
        Ok(Scanned { codec })
    }
}

impl Outlet<'_> {
    fn tell(&self, message: ToLayout) -> Result<(), IndexError> {
        self.layout.send(message).map_err(stopped)
    }

    /// Hands on the plain bytes `range` of `buffer`.
    fn plain(&mut self, buffer: Vec<u8>, range: Range<usize>) -> Result<(), IndexError> {
        self.plain += range.len() as u64;
        if self.plain > self.options.max_plain {
            return Err(IndexError::TooLarge {
                limit: self.options.max_plain,
            });
        }
        let chunk = Arc::new(Chunk { buffer, range });
        self.streams
            .send(ToStreams::Plain(chunk.clone(), self.pool.clone()))
            .map_err(stopped)?;
        self.tell(ToLayout::Plain(chunk, self.pool.clone()))
    }

    /// Whether a point at `plain` is far enough from the last one.
    fn wants_point(&self, plain: u64, spacing: u64) -> bool {
        self.last_point.is_none_or(|last| plain - last >= spacing)
    }

    fn point(&mut self, (source, bit): (u64, u8), plain: u64, history: bool) -> Result<(), IndexError> {
        let history = history.then_some(self.histories);
        self.histories += usize::from(history.is_some());
        self.last_point = Some(plain);
        self.tell(ToLayout::Point(Point {
            source,
            bit,
            plain,
            history,
        }))
    }
}

fn scan_gzip<R: Read>(source: Source<R>, output: &mut Outlet<'_>) -> Result<u64, IndexError> {
    let spacing = output.options.spacing.max(super::MIN_SPACING);
    let mut reader = GzipReader::new(source, CHUNK);
    let size = GzipReader::<R>::buffer_size(CHUNK);
    loop {
        let event = reader.next()?;
        let plain = reader.plain_offset();
        match event {
            // A member's start needs no window, so it may come sooner.
            Event::Member if output.wants_point(plain, spacing / 2) => {
                output.point(reader.source_offset(), plain, false)?;
            }
            Event::Block if output.wants_point(plain, spacing) => {
                output.point(reader.source_offset(), plain, true)?;
                reader.watch();
            }
            Event::Member | Event::Block => {}
            Event::History(bytes) => {
                output.streams.send(ToStreams::History(bytes)).map_err(stopped)?;
            }
            Event::Output | Event::End => {
                let end = reader.source_offset().0;
                let (buffer, range) = reader.take_output(output.pool.take(size));
                output.plain(buffer, range)?;
                if let Event::End = event {
                    return Ok(end);
                }
            }
        }
    }
}

fn scan_zstd<R: Read>(mut source: Source<R>, output: &mut Outlet<'_>) -> Result<u64, IndexError> {
    let bad = |at| move |error| IndexError::Zstd { at, error };
    let mut decoder = Decoder::new().map_err(bad(0))?;
    decoder
        .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))
        .map_err(bad(0))?;
    let mut buffer = output.pool.take(CHUNK);
    let mut filled = 0;
    let mut between_frames = true;
    loop {
        source.fill(1).map_err(IndexError::Read)?;
        let at = source.offset();
        if between_frames {
            if source.available().is_empty() {
                break;
            }
            let plain = output.plain + filled as u64;
            if output.wants_point(plain, output.options.spacing.max(super::MIN_SPACING)) {
                output.point((at, 0), plain, false)?;
            }
        }
        if filled == buffer.len() {
            let full = std::mem::replace(&mut buffer, output.pool.take(CHUNK));
            output.plain(full, 0..CHUNK)?;
            filled = 0;
        }
        let mut from = InBuffer::around(source.available());
        let mut to = OutBuffer::around_pos(&mut buffer[..], filled);
        let hint = decoder.run(&mut from, &mut to).map_err(bad(at))?;
        let (read, written) = (from.pos(), to.pos());
        if read == 0 && written == filled && source.available().is_empty() {
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the last frame is cut off");
            return Err(bad(at)(error));
        }
        filled = written;
        source.consume(read);
        between_frames = hint == 0;
    }
    output.plain(buffer, 0..filled)?;
    Ok(source.offset())
}

fn scan_tar<R: Read>(mut source: Source<R>, output: &mut Outlet<'_>) -> Result<u64, IndexError> {
    loop {
        source.fill(1).map_err(IndexError::Read)?;
        let available = source.available();
        if available.is_empty() {
            return Ok(source.offset());
        }
        let length = available.len().min(CHUNK);
        let mut buffer = output.pool.take(CHUNK);
        buffer[..length].copy_from_slice(&available[..length]);
        source.consume(length);
        output.plain(buffer, 0..length)?;
    }
}

/// Passes the blob's bytes on to be hashed as they are read.
struct Tap<R> {
    reader: R,
    streams: SyncSender<ToStreams>,
}

impl<R: Read> Read for Tap<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        // A thread that has gone has an error to report, which the scan meets at its next message.
        let _ = self.streams.send(ToStreams::Blob(bytes));
        Ok(count)
    }
}
