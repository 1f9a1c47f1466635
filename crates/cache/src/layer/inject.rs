//! Pages that come with a runtime image, from their injection to their comparison with the layer.
//!
//! They are verified against that image, not against the digests of the spans that they are in: a weaker witness, or
//! an equal one. So they are noted as *unverified* ([`crate::unverified`]) until all their spans were written
//! ([`CachedLayer::write_span`]), which compares the pages that it writes over.
//!
//! The invariant, whatever runs at the same time: no page is present and not unverified while it holds injected
//! bytes, and no verified byte is ever written over by an injected one. For that an injection has its pages to itself
//! ([`crate::page_write_locks`]) from looking which are missing until they are claimed, and so has a fill from comparing to
//! claiming. A fill that comes after finds the pages unverified, compares and writes; an injection that comes after
//! finds them present and leaves them alone. The one case in between is a page at the boundary of two spans, of which
//! only one was written: it is missing, but a part of it is verified. That part is kept when the page is injected.

use std::borrow::Cow;

use parking_lot::MutexGuard;

use super::mismatches::MISMATCHES;
use super::*;

/// Zero pages that are looked at together.
const CHUNK_PAGES: u64 = 256;

/// Pages that are given, one after the other.
struct Block<'a> {
    pages: Range<u64>,
    bytes: Cow<'a, [u8]>,
}

/// A part of a page that is not missing as a whole: bytes of the data space.
enum Part {
    /// In a span that was written.
    Verified(Range<u64>),
    /// In no span: zero in every layer.
    Gap(Range<u64>),
}

impl CachedLayer {
    /// Writes pages that were not compared with the digests of their spans: those that are missing, and no others. Each
    /// piece is the number of its first page, and the bytes from there on; of a page that is given twice, one is taken.
    /// Bytes that are in no span become zero, whatever bytes are given. If the disk is full, room is made and it is tried once more.
    /// Returns how many pages were written.
    ///
    /// All of it costs as many changes to the bitmaps as one piece would: give together what comes together.
    ///
    /// # Errors
    /// `InvalidInput` when a piece is not of whole pages of the data space; I/O errors of the data file or the bitmaps.
    /// Nothing is claimed then that was not written.
    pub fn inject(&self, pieces: &[(u64, &[u8])]) -> io::Result<u64> {
        let blocks = self.blocks(pieces)?;
        let pages: Vec<Range<u64>> = blocks.iter().map(|block| block.pages.clone()).collect();
        let length = pages.iter().map(|run| run.end - run.start).sum::<u64>() * PAGE_SIZE;
        self.with_room(length, || {
            self.inject_runs(&pages, |run| {
                let after = blocks.partition_point(|block| block.pages.start <= run.start);
                let block = after.checked_sub(1).and_then(|number| blocks.get(number));
                let given = block.and_then(|block| {
                    let offset = |page: u64| ((page - block.pages.start) * PAGE_SIZE) as usize;
                    block.bytes.get(offset(run.start)..offset(run.end))
                });
                let right = self.keep_parts(run, given.ok_or_else(outside)?)?;
                self.data.write_all_at(&right, run.start * PAGE_SIZE)
            })
        })
    }

    /// The pieces in ascending order, each page once; neighbours are one block.
    fn blocks<'a>(&self, pieces: &[(u64, &'a [u8])]) -> io::Result<Vec<Block<'a>>> {
        let mut ordered = pieces.to_vec();
        ordered.sort_unstable_by_key(|(first, _)| *first);
        let mut blocks: Vec<Block<'a>> = Vec::with_capacity(ordered.len());
        for (first, bytes) in ordered {
            let length = bytes.len() as u64;
            let end = first.checked_add(length / PAGE_SIZE);
            let end = end.filter(|end| *end <= self.presence.pages() && length.is_multiple_of(PAGE_SIZE));
            let end = end.ok_or_else(outside)?;
            let start = blocks.last().map_or(first, |last| last.pages.end.max(first));
            let given = end.checked_sub(start).filter(|pages| *pages > 0);
            let bytes = given.and_then(|_| bytes.get(((start - first) * PAGE_SIZE) as usize..));
            let Some(bytes) = bytes else { continue };
            match blocks.last_mut().filter(|last| last.pages.end == start) {
                Some(last) => {
                    last.bytes.to_mut().extend_from_slice(bytes);
                    last.pages.end = end;
                }
                None => blocks.push(Block {
                    pages: start..end,
                    bytes: Cow::Borrowed(bytes),
                }),
            }
        }
        Ok(blocks)
    }

    /// Claims those of `pages` that are missing, as pages that are zero according to a witness weaker than the digests
    /// of their spans. Nothing is written, unless something else is left there of a fill or an injection that was not
    /// claimed. Returns how many pages are new.
    ///
    /// # Errors
    /// As [`CachedLayer::inject`].
    pub fn inject_zeros(&self, pages: Range<u64>) -> io::Result<u64> {
        if pages.end > self.presence.pages() {
            return Err(outside());
        }
        self.with_room(PAGE_SIZE, || {
            self.inject_runs(from_ref(&pages), |run| self.zero(run))
        })
    }

    /// Notes, writes and claims the missing pages of `pages`, ascending runs.
    fn inject_runs(
        &self,
        pages: &[Range<u64>],
        write: impl Fn(&Range<u64>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let _turn = self.write_locks.take(pages, Sharing::Exclusive);
        let runs = self.presence.missing_of(pages);
        let runs: Vec<Range<u64>> = runs.into_iter().flat_map(|run| self.with_spans(run)).collect();
        self.presence.unverified().set(&runs)?;
        runs.iter().try_for_each(write)?;
        self.presence.claim_all(&runs)?;
        Ok(runs.iter().map(|run| run.end - run.start).sum())
    }

    /// The pages of `run` that a span reaches. Others nobody could ever verify, and nothing reads them.
    fn with_spans(&self, run: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for index in self.overlapping(run.start * PAGE_SIZE..run.end * PAGE_SIZE) {
            let Some(span) = self.table.spans.get(index) else {
                continue;
            };
            let pages = pages_of(&span.data);
            let pages = pages.start.max(run.start)..pages.end.min(run.end);
            match runs.last_mut() {
                Some(last) if last.end >= pages.start => last.end = last.end.max(pages.end),
                _ => runs.push(pages),
            }
        }
        runs
    }

    /// `given` for the missing pages of `run`, except for bytes that are known better: verified parts as they are, gaps zero.
    fn keep_parts<'a>(&self, run: &Range<u64>, given: &'a [u8]) -> io::Result<Cow<'a, [u8]>> {
        let start = run.start * PAGE_SIZE;
        let mut right = Cow::Borrowed(given);
        for part in self.known_parts(run) {
            let place = |range: &Range<u64>| (range.start - start) as usize..(range.end - start) as usize;
            match part {
                Part::Verified(range) => {
                    if let Some(bytes) = right.to_mut().get_mut(place(&range)) {
                        self.data.read_exact_at(bytes, range.start)?;
                    }
                }
                Part::Gap(range) => {
                    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
                    if !right.get(place(&range)).is_none_or(is_zero)
                        && let Some(bytes) = right.to_mut().get_mut(place(&range))
                    {
                        bytes.fill(0);
                    }
                }
            }
        }
        Ok(right)
    }

    /// The parts of missing pages about which the runtime image is not asked.
    fn known_parts(&self, run: &Range<u64>) -> Vec<Part> {
        let bytes = run.start * PAGE_SIZE..run.end * PAGE_SIZE;
        let (mut parts, mut at) = (Vec::new(), bytes.start);
        let written = self.written.lock();
        for index in self.overlapping(bytes.clone()) {
            let Some(span) = self.table.spans.get(index) else {
                continue;
            };
            let inside = span.data.start.max(bytes.start)..span.data.end.min(bytes.end);
            if inside.start > at {
                parts.push(Part::Gap(at..inside.start));
            }
            at = inside.end;
            if written.has(index) {
                parts.push(Part::Verified(inside));
            }
        }
        if at < bytes.end {
            parts.push(Part::Gap(at..bytes.end));
        }
        parts
    }

    /// Makes sure that the missing pages of `run` are zero. They are holes, but for bytes of a worker that died
    /// or failed before it could claim them, or before a power cut.
    fn zero(&self, run: &Range<u64>) -> io::Result<()> {
        for start in (run.start..run.end).step_by(CHUNK_PAGES as usize) {
            let chunk = start..(start + CHUNK_PAGES).min(run.end);
            let zeros = vec![0; ((chunk.end - chunk.start) * PAGE_SIZE) as usize];
            let mut found = zeros.clone();
            self.data.read_exact_at(&mut found, start * PAGE_SIZE)?;
            if found == zeros {
                continue;
            }
            let right = self.keep_parts(&chunk, &zeros)?;
            if found != *right {
                self.data.write_all_at(&right, start * PAGE_SIZE)?;
            }
        }
        Ok(())
    }

    /// The runs of pages inside `range` that are present and were injected and not compared since, ascending.
    pub fn unverified(&self, range: Range<u64>) -> Vec<Range<u64>> {
        if self.presence.unverified().is_empty() {
            return Vec::new();
        }
        // In this order: a page is noted as unverified before it is claimed.
        self.presence.unverified().within(self.presence.held(range))
    }

    /// Whether any page that is present was injected and not compared since.
    pub fn has_unverified(&self) -> bool {
        !self.unverified(0..self.presence.pages()).is_empty()
    }

    /// Whether any page that is present was injected and not compared, or may be taken for one after a power cut: if the bytes that
    /// replaced the injected ones are not on the disk, the page holds the injected ones then.
    pub fn may_have_unverified(&self) -> bool {
        let all = 0..self.presence.pages();
        self.presence.unverified().may_remain(self.presence.held(all))
    }

    /// The spans, ascending, that must be written before no page that `range` (bytes of the data space) touches is
    /// unverified.
    pub fn unverified_spans(&self, range: Range<u64>) -> Vec<usize> {
        let mut spans: Vec<usize> = Vec::new();
        let runs = self.unverified(pages_of(&range));
        for run in runs {
            let overlapping = self.overlapping(run.start * PAGE_SIZE..run.end * PAGE_SIZE);
            let first = spans.last().map_or(0, |last| last + 1);
            spans.extend(overlapping.start.max(first)..overlapping.end);
        }
        let written = self.written.lock();
        let unwritten: Vec<usize> = spans.iter().copied().filter(|span| !written.has(*span)).collect();
        // Never nothing while there is something to verify.
        if unwritten.is_empty() { spans } else { unwritten }
    }

    /// Whether the span was written, verified, and is still there.
    pub fn is_written(&self, index: usize) -> bool {
        self.written.lock().has(index)
    }

    /// The pages that were injected and that turned out, since this was last asked, not to be the layer's; as runs,
    /// ascending. They have the right bytes by now.
    ///
    /// They are also in a file, written before the right bytes: a process that opens the layer after one that died is told
    /// of them, until [`CachedLayer::mismatches_are_heard`].
    pub fn take_mismatches(&self) -> Vec<Range<u64>> {
        let pages = self.presence.pages();
        let mut mismatches = self.mismatches.lock();
        if mismatches.count() == 0 {
            return Vec::new();
        }
        std::mem::replace(&mut *mismatches, Bits::zero(pages)).runs(0..pages, true)
    }

    /// To be called after the result of [`CachedLayer::take_mismatches`] was acted upon: a later process need not be told of it.
    pub fn mismatches_are_heard(&self) {
        let mismatches = self.mismatches.lock();
        // Others may have been found meanwhile.
        if mismatches.count() == 0 {
            // Told again at worst.
            let _ = self.disk.remove_file(&self.directory.join(MISMATCHES));
        }
    }

    /// Compares the unverified pages of a span with its verified bytes; notes those that differ, and says how many
    /// were not known yet. No caller hears of them before the lock is given back, which is when the right bytes are written.
    pub(super) fn compare(
        &self,
        span: &Span,
        bytes: &[u8],
    ) -> io::Result<(u64, Option<MutexGuard<'_, Bits>>)> {
        let mut wrong = Vec::new();
        for page in self.unverified(pages_of(&span.data)).into_iter().flatten() {
            let start = (page * PAGE_SIZE).max(span.data.start);
            let end = ((page + 1) * PAGE_SIZE).min(span.data.end);
            let place = (start - span.data.start) as usize..(end - span.data.start) as usize;
            let mut found = vec![0; place.len()];
            if let Err(error) = self.data.read_exact_at(&mut found, start) {
                // No witness against anybody; the right bytes come in its place.
                warn!("page {page} of {} cannot be compared: {error}", self.key);
            } else if bytes.get(place).is_some_and(|right| right != found) {
                wrong.push(page);
            }
        }
        if wrong.is_empty() {
            return Ok((0, None));
        }
        let mut mismatches = self.mismatches.lock();
        self.write_mismatches(&wrong)?;
        let known = mismatches.count();
        wrong.iter().for_each(|page| mismatches.put(*page, true));
        Ok((mismatches.count() - known, Some(mismatches)))
    }

    /// Adds pages to the file of mismatches. The lock on the mismatches is held.
    fn write_mismatches(&self, pages: &[u64]) -> io::Result<()> {
        let file = self.disk.open(&self.directory.join(MISMATCHES), Access::Create)?;
        let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        file.write_all_at(&bytes, file.length()?)
    }
}

fn outside() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "not whole pages of the layer's data space",
    )
}
