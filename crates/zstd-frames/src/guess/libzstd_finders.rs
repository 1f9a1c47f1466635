//! How libzstd's lazy strategies find the longest copy for a place (`zstd_lazy.c`): by rows of places with the same hash, or by chains of them.

use super::common::{common, eight, hash};
use super::libzstd::Parameters;

/// Finds copies.
pub(crate) trait Finder {
    /// Takes up the parameters of a frame. What was found before may be kept.
    fn begin_frame(&mut self, parameters: &Parameters);

    /// Forgets all, and indexes all places from `first` on, up to `end`.
    fn begin_job(&mut self, text: &[u8], first: usize, end: usize);

    /// How many bytes before the end of a block the search ends.
    fn margin(&self) -> usize;

    /// The longest copy for `place` of four bytes or more, and where it is from; not before `low`, and not beyond `end`. If the search `skips`, places
    /// since the last search are not indexed.
    fn find(
        &mut self,
        text: &[u8],
        place: usize,
        bounds: (usize, usize),
        skips: bool,
    ) -> Option<(usize, usize)>;

    /// The next place to be indexed.
    fn next(&mut self) -> &mut usize;
}

/// Rows of 16 to 64 places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    /// Whether a row's first place is used, too, as in versions before 1.5.5.
    is_old: bool,
    row_log: u32,
    hash_log: u32,
    least: u32,
    attempts: usize,
    places: Vec<u32>,
    /// Eight bits more of each place's hash.
    tags: Vec<u8>,
    /// Where in its row the last place was put.
    heads: Vec<u8>,
    next: usize,
}

impl Rows {
    const TAG: u32 = 8;
    /// So many places behind a copy are not all indexed.
    const LONG: usize = 384;
    const LONG_FIRST: usize = 96;
    const LONG_LAST: usize = 32;

    pub(crate) fn new(is_old: bool) -> Rows {
        Rows {
            is_old,
            ..Rows::default()
        }
    }

    #[inline]
    fn row(&self, text: &[u8], place: usize) -> (usize, u8) {
        let hash = hash(eight(text, place), self.least, self.hash_log + Rows::TAG);
        (hash >> Rows::TAG, hash as u8)
    }

    #[inline]
    fn put(&mut self, row: usize, tag: u8, place: usize) {
        let mask = (1 << self.row_log) - 1;
        let head = &mut self.heads[row];
        *head = head.wrapping_sub(1) & mask;
        if *head == 0 && !self.is_old {
            *head = mask;
        }
        let at = (row << self.row_log) + usize::from(*head);
        self.places[at] = place as u32 + 1;
        self.tags[at] = tag;
    }

    fn index(&mut self, text: &[u8], from: usize, end: usize) {
        for place in from..end {
            let (row, tag) = self.row(text, place);
            self.put(row, tag, place);
        }
    }
}

impl Finder for Rows {
    fn begin_frame(&mut self, parameters: &Parameters) {
        self.row_log = parameters.search_log.clamp(4, 6);
        self.hash_log = parameters.hash_log - self.row_log;
        self.least = parameters.least.clamp(4, 6);
        self.attempts = 1 << parameters.search_log.min(self.row_log);
        let size = 1 << parameters.hash_log;
        if self.places.len() != size || self.heads.len() != 1 << self.hash_log {
            self.places = vec![0; size];
            self.tags = vec![0; size];
            self.heads = vec![0; 1 << self.hash_log];
        }
    }

    fn begin_job(&mut self, text: &[u8], first: usize, end: usize) {
        self.places.fill(0);
        self.heads.fill(0);
        self.index(text, first, end);
    }

    fn margin(&self) -> usize {
        16
    }

    fn find(
        &mut self,
        text: &[u8],
        place: usize,
        (low, end): (usize, usize),
        skips: bool,
    ) -> Option<(usize, usize)> {
        if skips {
            self.next = self.next.max(place);
        } else if place > self.next {
            if place - self.next > Rows::LONG {
                self.index(text, self.next, self.next + Rows::LONG_FIRST);
                self.next = place - Rows::LONG_LAST;
            }
            self.index(text, self.next, place);
            self.next = place;
        }
        let (row, tag) = self.row(text, place);
        let (first, size) = (row << self.row_log, 1 << self.row_log);
        let head = usize::from(self.heads[row]);
        let (places, tags) = (&self.places[first..first + size], &self.tags[first..first + size]);
        let (mut best, mut length, mut attempts) = (None, 3, self.attempts);
        for at in (head..size).chain(0..head) {
            if tags[at] != tag || (at == 0 && !self.is_old) {
                continue;
            }
            let Some(from) = (places[at] as usize).checked_sub(1).filter(|&from| from >= low) else {
                break;
            };
            if attempts == 0 {
                break;
            }
            attempts -= 1;
            if from < place && text.get(from + length) == text.get(place + length) {
                let other = common(text, place, from, end);
                if other > length {
                    (best, length) = (Some(from), other);
                    if place + length == end {
                        break;
                    }
                }
            }
        }
        if self.next == place {
            self.put(row, tag, place);
            self.next += 1;
        }
        best.map(|from| (length, from))
    }

    fn next(&mut self) -> &mut usize {
        &mut self.next
    }
}
