//! The bytes that the quick levels see, and the tables in which they look earlier ones up.
//!
//! A table's entry is a place: an index into the window, and a base that grows when the window's bytes move. So an entry stays right when they move,
//! and one that is out of reach is told by its distance alone.

use crate::format::WINDOW;

/// The bytes of a batch.
pub(super) const BATCH: usize = 65_535;
/// Copies by the quick levels are from nearer than this, or from here at most, as each level has it.
pub(super) const REACH: i32 = WINDOW as i32;
/// The last bytes of a batch at which no copy is looked for.
const MARGIN: i32 = 11;
/// The base when entries begin. Zero, which is in an empty entry, is out of reach from here.
const FIRST_BASE: i32 = 2 * REACH;
/// The base at which all entries are counted anew, so that they do not overflow. Tests reach it.
const LAST_BASE: i32 = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Bytes before the batch, and those of the batch.
#[derive(Debug, Clone)]
pub(super) struct Window {
    bytes: Vec<u8>,
    base: i32,
    /// How many bytes it holds before it moves. A copy never begins before the first of them, so this shows in the output.
    room: usize,
}

impl Window {
    /// Fewer bytes are not matched at all.
    pub(super) const LEAST: usize = 13;

    /// A window that holds so many batches.
    pub(super) fn new(batches: usize) -> Window {
        Window {
            bytes: Vec::new(),
            base: FIRST_BASE,
            room: batches * BATCH,
        }
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The most bytes that it has.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Begins with bytes at which nothing can be found, as many as if there had been earlier ones.
    pub(super) fn begin_with_nothing(&mut self, length: usize) {
        self.bytes.clear();
        self.bytes.resize(length, 0);
    }

    /// Forgets all bytes. Entries for them come out of reach.
    pub(super) fn clear(&mut self) {
        self.base += REACH + self.bytes.len() as i32;
        self.bytes.clear();
    }

    /// How many bytes there were in the window of [`Window::len`] `length` before its last batch, if that was a full one. `None` if that cannot be.
    pub(super) fn length_before(&self, length: usize) -> Option<usize> {
        if length == WINDOW + BATCH {
            Some(WINDOW + BATCH * ((self.room - WINDOW) / BATCH))
        } else {
            length.checked_sub(BATCH)
        }
    }

    /// Appends a batch. Returns by how much the entries of the tables are to become less first.
    pub(super) fn append(&mut self, batch: &[u8]) -> i32 {
        let less = if self.base >= LAST_BASE {
            self.base - FIRST_BASE
        } else {
            0
        };
        self.base -= less;
        if self.bytes.len() + batch.len() > self.room {
            let gone = self.bytes.len() - WINDOW;
            self.bytes.drain(..gone);
            self.base += gone as i32;
        }
        self.bytes.reserve_exact(self.room - self.bytes.len());
        self.bytes.extend_from_slice(batch);
        less
    }

    /// The window to look into.
    pub(super) fn text(&self) -> Text<'_> {
        Text {
            bytes: &self.bytes,
            base: self.base,
            limit: self.bytes.len() as i32 - MARGIN,
        }
    }
}

/// A view of the window. Indices are signed, since what an entry of a table stands for can lie before the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    bytes: &'a [u8],
    base: i32,
    /// The first index at which no copy begins.
    pub(super) limit: i32,
}

impl Text<'_> {
    pub(super) fn end(&self) -> i32 {
        self.bytes.len() as i32
    }

    /// The entry for an index.
    #[inline]
    pub(super) fn place(&self, at: i32) -> i32 {
        at + self.base
    }

    /// The index of an entry, negative if it lies before the window.
    #[inline]
    pub(super) fn index(&self, place: i32) -> i32 {
        place - self.base
    }

    #[inline]
    pub(super) fn slice(&self, from: i32, to: i32) -> &[u8] {
        self.bytes.get(from as usize..to as usize).unwrap_or_default()
    }

    /// Four bytes as a number.
    #[inline]
    pub(super) fn four(&self, at: i32) -> u32 {
        let bytes = self.bytes.get(at as usize..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |four| u32::from_le_bytes(*four))
    }

    /// Eight bytes as a number.
    #[inline]
    pub(super) fn eight(&self, at: i32) -> u64 {
        let bytes = self.bytes.get(at as usize..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |eight| u64::from_le_bytes(*eight))
    }

    /// How many bytes are the same from two indices on, the first of them the later one.
    #[inline]
    pub(super) fn same(&self, at: i32, from: i32) -> i32 {
        common(self.slice(at, self.end()), self.slice(from, self.end()))
    }

    /// As [`Text::same`], but 254 at most: with the four bytes before them the longest copy.
    #[inline]
    pub(super) fn same_in_copy(&self, at: i32, from: i32) -> i32 {
        let end = self.end().min(at + 254);
        common(self.slice(at, end), self.slice(from, self.end()))
    }

    /// Moves the beginning of a copy back while the bytes before it are the same, as far as the first byte that no token has yet.
    #[inline]
    pub(super) fn extended_back(&self, mut found: Found, first: i32) -> Found {
        while found.from > 0
            && found.at > first
            && self.bytes[found.from as usize - 1] == self.bytes[found.at as usize - 1]
        {
            found.from -= 1;
            found.at -= 1;
            found.length += 1;
        }
        found
    }
}

/// A copy that was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) at: i32,
    pub(super) from: i32,
    /// 0 as long as it was not measured.
    pub(super) length: i32,
}

impl Found {
    /// A copy that was not measured.
    #[inline]
    pub(super) fn new(at: i32, from: i32) -> Found {
        Found { at, from, length: 0 }
    }
}

/// How many bytes two slices have in common at their beginning. The second is the longer one.
#[inline]
pub(super) fn common(one: &[u8], other: &[u8]) -> i32 {
    let mut length = 0;
    let eights = one.chunks_exact(8);
    let rest = eights.remainder();
    for (one, other) in eights.zip(other.chunks_exact(8)) {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let difference = number(one) ^ number(other);
        if difference != 0 {
            return length + (difference.trailing_zeros() / 8) as i32;
        }
        length += 8;
    }
    let other = other.get(length as usize..).unwrap_or_default();
    length
        + rest
            .iter()
            .zip(other)
            .take_while(|(one, other)| one == other)
            .count() as i32
}

/// A table of places by a hash of `BITS` bits.
#[derive(Debug, Clone)]
pub(super) struct Table<const SIZE: usize, Entry>(Box<[Entry; SIZE]>);

impl<const SIZE: usize, Entry: Copy + Default> Table<SIZE, Entry> {
    pub(super) fn new() -> Table<SIZE, Entry> {
        let entries = vec![Entry::default(); SIZE].into_boxed_slice().try_into();
        Table(entries.unwrap_or_else(|_| Box::new([Entry::default(); SIZE])))
    }

    #[inline]
    pub(super) fn get(&self, hash: usize) -> Entry {
        self.0[hash % SIZE]
    }

    #[inline]
    pub(super) fn set(&mut self, hash: usize, entry: Entry) {
        self.0[hash % SIZE] = entry;
    }
}

impl<const SIZE: usize> Table<SIZE, i32> {
    /// Counts the entries anew.
    pub(super) fn lessen(&mut self, less: i32) {
        for place in self.0.iter_mut() {
            *place = (*place - less).max(0);
        }
    }
}

/// The last place, and the one before it.
pub(super) type Pair = [i32; 2];

impl<const SIZE: usize> Table<SIZE, Pair> {
    #[inline]
    pub(super) fn push(&mut self, hash: usize, place: i32) {
        let pair = &mut self.0[hash % SIZE];
        *pair = [place, pair[0]];
    }

    /// Counts the entries anew.
    pub(super) fn lessen(&mut self, less: i32) {
        for place in self.0.iter_mut().flatten() {
            *place = (*place - less).max(0);
        }
    }
}

/// Hashes the four lowest bytes.
#[inline]
pub(super) fn hash_of_4<const BITS: u32>(bytes: u64) -> usize {
    ((bytes as u32).wrapping_mul(2_654_435_761) >> (32 - BITS)) as usize
}

/// Hashes the five lowest bytes.
#[inline]
pub(super) fn hash_of_5<const BITS: u32>(bytes: u64) -> usize {
    ((bytes << 24).wrapping_mul(889_523_592_379) >> (64 - BITS)) as usize
}

/// Hashes the seven lowest bytes.
#[inline]
pub(super) fn hash_of_7<const BITS: u32>(bytes: u64) -> usize {
    ((bytes << 8).wrapping_mul(58_295_818_150_454_627) >> (64 - BITS)) as usize
}
