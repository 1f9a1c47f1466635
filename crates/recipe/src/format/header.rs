//! Headers of tar streams, each guessed from those before it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::BLOCK;

/// The fields of a header but for its kind and its checksum, in the order of the bits that say whether they are as guessed.
pub(super) const FIELDS: [Range<usize>; 14] = [
    NAME,
    100..108,
    108..116,
    116..124,
    SIZE,
    MODIFIED,
    157..257,
    257..265,
    265..297,
    297..329,
    329..337,
    337..345,
    PREFIX,
    500..512,
];
pub(super) const NAME: Range<usize> = 0..100;
pub(super) const MODIFIED: Range<usize> = 136..148;
const SIZE: Range<usize> = 124..136;
/// The digits of a size; what ends them is the byte after.
const SIZE_DIGITS: Range<usize> = 124..135;
const CHECKSUM: Range<usize> = 148..156;
const KIND: usize = 156;
const PREFIX: Range<usize> = 345..500;

/// A block of a tar stream.
pub(super) type Block = [u8; BLOCK];

/// How many forms of a checksum there are.
pub(super) const FORMS: u64 = 3;

/// The form of the checksum of a block, if it is a header: exactly what tar programs write. Only such a block is taken apart.
pub(super) fn form_of(block: &Block) -> Option<u64> {
    let field = block.get(CHECKSUM);
    (0..FORMS).find(|&form| field == Some(&checksum(block, form)))
}

/// Writes the checksum in a form.
pub(super) fn complete(block: &mut Block, form: u64) {
    let sum = checksum(block, form);
    if let Some(field) = block.get_mut(CHECKSUM) {
        field.copy_from_slice(&sum);
    }
}

/// A checksum in octal digits: six of them, a zero and a space (GNU, BSD, Go, Java, Python), or seven and a zero (Rust), or six, a space and a zero (Node).
fn checksum(block: &Block, form: u64) -> [u8; 8] {
    let outside = |at: &usize| !CHECKSUM.contains(at);
    let rest = block.iter().enumerate().filter(|(at, _)| outside(at));
    let sum = 8 * u32::from(b' ') + rest.map(|(_, &byte)| u32::from(byte)).sum::<u32>();
    let digit = |at: u32| b'0' + (sum >> (3 * at) & 7) as u8;
    let [a, b, c, d, e, f] = [5, 4, 3, 2, 1, 0].map(digit);
    match form {
        0 => [a, b, c, d, e, f, 0, b' '],
        1 => [b'0', a, b, c, d, e, f, 0],
        _ => [a, b, c, d, e, f, b' ', 0],
    }
}

/// The kind of a header.
pub(super) fn kind(block: &[u8]) -> u8 {
    block.get(KIND).copied().unwrap_or_default()
}

/// Guesses headers.
pub(super) struct Guess {
    /// The last header of each kind.
    by_kind: BTreeMap<u8, Block>,
    /// The last header of a member, and the last one that is about another member.
    last: [Block; 2],
}

impl Guess {
    /// With no header before.
    pub(super) fn new() -> Guess {
        Guess {
            by_kind: BTreeMap::new(),
            last: [[0; BLOCK]; 2],
        }
    }

    /// The next header, of this kind, if so many bytes seem to follow it: name and time are those of the header before, the rest is that of the last one of
    /// this kind.
    pub(super) fn next(&self, kind: u8, size: u64) -> Block {
        let mut block = self.by_kind.get(&kind).copied().unwrap_or([0; BLOCK]);
        let last = self.last.get(is_about_another(kind)).unwrap_or(&[0; BLOCK]);
        for field in [NAME, MODIFIED, PREFIX] {
            if let (Some(to), Some(from)) = (block.get_mut(field.clone()), last.get(field)) {
                to.copy_from_slice(from);
            }
        }
        let mut left = size;
        for digit in block.get_mut(SIZE_DIGITS).into_iter().flatten().rev() {
            *digit = b'0' + (left & 7) as u8;
            left >>= 3;
        }
        if let Some(at) = block.get_mut(KIND) {
            *at = kind;
        }
        block
    }

    /// What the header was.
    pub(super) fn learn(&mut self, block: &Block) {
        let kind = kind(block);
        self.by_kind.insert(kind, *block);
        if let Some(last) = self.last.get_mut(is_about_another(kind)) {
            *last = *block;
        }
    }
}

/// 1 for records, long names and long targets, else 0.
fn is_about_another(kind: u8) -> usize {
    usize::from(matches!(kind, b'x' | b'g' | b'L' | b'K'))
}
