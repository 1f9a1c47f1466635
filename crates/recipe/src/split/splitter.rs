//! Follows a tar stream from header to header.

use super::contents::Contents;
use super::frame::Frame;
use super::piece::{Cutter, Piece, Sink, is_zero};
use super::tar::{self, BLOCK, Header, Meta};
use crate::chunk::Hint;

/// Files shorter than this are part of the frame: a chunk of its own would cost as much as they do.
const LEAST_CHUNK: u64 = 128;
/// Bodies of PAX records and of long names that are looked at, at most. After a longer one the rest of the stream is not followed.
const MOST_META: u64 = 1 << 20;

/// Where in a tar stream the splitter is.
enum State {
    /// In a block that should be a header, or zeros.
    Header,
    /// In frame: so many bytes more.
    Frame(u64),
    /// In the body of a member that is about the next one, with `left` bytes of it and then padding to come.
    Meta { meta: Meta, left: u64, padding: u64 },
    /// In blocks that say where a sparse file (of old GNU tar) has data.
    Sparse(Header),
    /// In the contents of a file, with `left` bytes of it and then padding to come.
    Contents { left: u64, padding: u64 },
    /// In bytes that are not understood, up to the end.
    Rest,
}

/// Cuts plain bytes that come in pieces of any size. The same bytes are always cut in the same way, up to two [`Piece::Inline`] that follow each other.
/// Takes at most [`MOST_CHUNK`](crate::MOST_CHUNK) of memory and some 1.5 MiB.
pub struct Splitter {
    state: State,
    /// Of a block, what has come.
    block: Vec<u8>,
    /// Of the body of a [`State::Meta`], what has come.
    body: Vec<u8>,
    /// What bodies said of the next member.
    said: tar::Said,
    /// Whether a body was too long to be looked at.
    is_lost: bool,
    frame: Frame,
    contents: Contents,
}

impl Splitter {
    /// A splitter at the beginning of a stream.
    pub fn new(cutter: Cutter) -> Splitter {
        Splitter {
            state: State::Header,
            block: Vec::with_capacity(BLOCK),
            body: Vec::new(),
            said: tar::Said::default(),
            is_lost: false,
            frame: Frame::default(),
            contents: Contents::new(cutter),
        }
    }

    /// The next bytes. Pieces that are complete go to `sink`.
    pub fn write(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(Piece<'_>)) {
        while !bytes.is_empty() {
            let taken = match &mut self.state {
                State::Header | State::Sparse(_) => self.gather_block(bytes, sink),
                State::Frame(left) => {
                    let (own, length) = head(bytes, *left);
                    *left -= length;
                    self.frame.put(own, sink);
                    own.len()
                }
                State::Meta { left, .. } => {
                    let (own, length) = head(bytes, *left);
                    *left -= length;
                    self.frame.put(own, sink);
                    self.body.extend_from_slice(own);
                    own.len()
                }
                State::Contents { left, .. } => {
                    let (own, length) = head(bytes, *left);
                    *left -= length;
                    self.contents.put(own, sink);
                    own.len()
                }
                State::Rest => {
                    self.contents.put(bytes, sink);
                    bytes.len()
                }
            };
            bytes = bytes.get(taken..).unwrap_or_default();
            self.go_on(sink);
        }
    }

    /// The end of the stream: what is left goes to `sink`.
    pub fn finish(mut self, sink: &mut dyn FnMut(Piece<'_>)) {
        match self.state {
            State::Contents { .. } | State::Rest => self.contents.end(sink),
            State::Header | State::Sparse(_) => self.frame.put(&self.block, sink),
            State::Frame(_) | State::Meta { .. } => {}
        }
        self.frame.flush(sink);
    }

    /// Takes bytes of a block and, when it is complete, what it says. Returns how many it took.
    fn gather_block(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        let (own, _) = head(bytes, (BLOCK - self.block.len()) as u64);
        self.block.extend_from_slice(own);
        if self.block.len() == BLOCK {
            let mut block = std::mem::take(&mut self.block);
            match std::mem::replace(&mut self.state, State::Header) {
                State::Sparse(header) => {
                    self.frame.put(&block, sink);
                    self.state = match tar::sparse_goes_on(&block, tar::SPARSE_MORE_IN_MAP) {
                        true => State::Sparse(header),
                        false => self.contents_of(header, sink),
                    };
                }
                _ => self.state = self.take_header(&block, sink),
            }
            block.clear();
            self.block = block;
        }
        own.len()
    }

    /// Takes a block where a header should be. Returns what follows.
    fn take_header(&mut self, block: &[u8], sink: &mut Sink<'_>) -> State {
        if is_zero(block) {
            self.frame.put(block, sink);
            return State::Header;
        }
        let Some(mut header) = tar::header(block).filter(|_| !self.is_lost) else {
            self.frame.flush(sink);
            self.contents.begin(Hint::default(), None);
            self.contents.put(block, sink);
            return State::Rest;
        };
        self.frame.put(block, sink);
        if let Some(meta) = header.meta() {
            let (left, padding) = (header.size, tar::padding(header.size));
            self.is_lost = meta != Meta::Other && left > MOST_META;
            return match meta {
                _ if self.is_lost => State::Frame(left.saturating_add(padding)),
                Meta::Other => State::Frame(left.saturating_add(padding)),
                _ => State::Meta { meta, left, padding },
            };
        }
        std::mem::take(&mut self.said).apply_to(&mut header);
        match header.is_sparse() && tar::sparse_goes_on(block, tar::SPARSE_MORE_IN_HEADER) {
            true => State::Sparse(header),
            false => self.contents_of(header, sink),
        }
    }

    /// What follows a header: the contents of a file that is long enough, or frame.
    fn contents_of(&mut self, header: Header, sink: &mut Sink<'_>) -> State {
        let size = if header.has_contents() { header.size } else { 0 };
        let padding = tar::padding(size);
        if size < LEAST_CHUNK {
            return State::Frame(size + padding);
        }
        self.frame.flush(sink);
        self.contents.begin(Hint::of(&header.name, size), Some(size));
        State::Contents { left: size, padding }
    }

    /// Leaves a state that has all its bytes.
    fn go_on(&mut self, sink: &mut Sink<'_>) {
        match self.state {
            State::Meta {
                meta,
                left: 0,
                padding,
            } => {
                self.said.learn(meta, &self.body);
                self.body.clear();
                self.state = State::Frame(padding);
            }
            State::Contents { left: 0, padding } => {
                self.contents.end(sink);
                self.state = State::Frame(padding);
            }
            _ => {}
        }
        if let State::Frame(0) = self.state {
            self.state = State::Header;
        }
    }
}

/// The first of these bytes, `most` of them at most, and how many these are.
fn head(bytes: &[u8], most: u64) -> (&[u8], u64) {
    let length = usize::try_from(most).map_or(bytes.len(), |most| most.min(bytes.len()));
    (bytes.get(..length).unwrap_or_default(), length as u64)
}
