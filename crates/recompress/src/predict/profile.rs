//! Profiles: how families of encoders look for copies and choose among them. A stretch names the one that its corrections are relative to, by its
//! place in [`PROFILES`]; so places keep their meaning for ever, and new ones come at the end.
//!
//! The figures are those of the encoders' tables of levels: zlib 1.3 `deflate.c` (zlib licence; GNU gzip 1.12 has the same), Go 1.26
//! `compress/flate/deflate.go` (BSD), zlib-ng 2.2 `deflate.c` (zlib licence), libdeflate 1.22 `deflate_compress.c` (MIT), ISA-L 2.31 `igzip` (BSD),
//! 7-Zip 25 `DeflateEncoder.cpp` (LGPL). Only what they decide is told here; none of their code is.

/// How places with equal first bytes find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    /// Three bytes, each shifted by this many bits more than the next, in three times as many bits (zlib).
    Shifted(u32),
    /// Four bytes, the first one lowest, by a factor; the highest of 32 bits are kept, this many.
    Product(u32, u32),
    /// Four bytes, the first one highest, by a factor; the highest of 32 bits are kept, this many.
    Reversed(u32, u32),
    /// Four bytes by the CRC-32C instruction; the lowest bits are kept, this many (ISA-L).
    Castagnoli(u32),
    /// Four bytes, the first one lowest, by a factor, and that factor added; fifteen of the upper bits are kept.
    ShiftedFour,
    /// The same of three bytes and a zero.
    CastagnoliThree(u32),
}

/// What is done with the longest copy that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is taken.
    Greedy,
    /// It is taken unless a longer one begins at the next byte (zlib).
    Lazy,
    /// It is taken; but if the copy after it can begin so much earlier that one byte is left, that byte is a literal (zlib-ng).
    Shifting,
    /// It is taken unless one at the next byte is better when its distance counts, too (libdeflate).
    Weighed,
    /// The same, and one at the second next byte.
    WeighedTwice,
    /// Bytes are looked at by pairs: one of eight bytes or more is taken at either of them, then a shorter one at either (ISA-L).
    Pairs,
    /// All copies are weighed, and the cheapest way by the code of the block is taken (libdeflate from level 10 on, zopfli).
    Cheapest,
    /// The same by the code of the last block with tokens (7-Zip with one pass).
    CheapestByLast,
    /// It is taken, if it is of a place that the encoder has entered, which is learned.
    Recent,
}

/// How an encoder decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) hash: Hash,
    /// Whether the last place with the same three bytes is looked at, too, for a copy of three.
    pub(super) has_threes: bool,
    pub(super) choice: Choice,
    /// How many places of a chain are looked at.
    pub(super) depth: u32,
    /// If there is a copy this long already, only a quarter of the chain is looked at.
    pub(super) good: u32,
    /// Copies shorter than this are compared with those that begin one byte later.
    pub(super) lazy: u32,
    /// A copy this long ends the search.
    pub(super) nice: u32,
    /// The places within a copy longer than this are not entered into chains,
    pub(super) entered: u32,
    /// and of other copies only so many.
    pub(super) inner: u32,
    /// and the last one.
    pub(super) last: bool,
    /// Whether a place that seemed to have a longer copy, but has not, ends the search.
    pub(super) gives_up: bool,
    /// Copies of the shortest length are not taken from farther away.
    pub(super) far: u32,
    /// Copies are not taken from farther away.
    pub(super) window: u32,
    /// The shortest copy.
    pub(super) shortest: u32,
    /// Whether the shortest copy is longer where few different bytes come (libdeflate).
    pub(super) adapts: bool,
    /// Whether of ways that cost the same the one is taken that is found first from the beginning (7-Zip, zopfli), not from the end (libdeflate); and
    /// whether a copy longer than `nice` is always taken (7-Zip).
    pub(super) is_onward: bool,
    pub(super) is_forced: bool,
    /// What a literal, a length and a distance cost that the code has no word for.
    pub(super) missing: [u32; 3],
}

const ZLIB: Profile = Profile {
    hash: Hash::Shifted(5),
    has_threes: false,
    choice: Choice::Lazy,
    depth: 128,
    good: 8,
    lazy: 16,
    nice: 128,
    entered: 258,
    inner: 258,
    last: false,
    gives_up: false,
    far: 4096,
    window: 32_768 - 262,
    shortest: 3,
    adapts: false,
    is_onward: false,
    is_forced: false,
    missing: [13, 13, 10],
};

/// zlib's `deflate_fast`: no place within a longer copy is entered.
const fn fast(base: Profile, entered: u32, nice: u32, depth: u32) -> Profile {
    Profile {
        choice: Choice::Greedy,
        depth,
        nice,
        entered,
        far: 32_768,
        ..base
    }
}

const fn lazy(base: Profile, good: u32, lazy: u32, nice: u32, depth: u32) -> Profile {
    Profile {
        good,
        lazy,
        nice,
        depth,
        ..base
    }
}

/// zlib with `memLevel` 9, as pigz has it.
const LARGE: Profile = Profile {
    hash: Hash::Shifted(6),
    ..ZLIB
};

const GO: Profile = Profile {
    hash: Hash::Reversed(0x1e35_a7bd, 17),
    far: 4096,
    window: 32_768,
    shortest: 4,
    ..ZLIB
};

const NG: Profile = Profile {
    hash: Hash::Product(2_654_435_761, 16),
    far: 32_768,
    shortest: 4,
    ..ZLIB
};

/// zlib-ng's `deflate_medium`; below level 5 it does not look at the next copy.
const fn medium(nice: u32, depth: u32, choice: Choice) -> Profile {
    Profile {
        choice,
        nice,
        depth,
        good: 259,
        gives_up: matches!(choice, Choice::Greedy),
        ..NG
    }
}

const fn libdeflate(choice: Choice, depth: u32, nice: u32) -> Profile {
    Profile {
        hash: Hash::Product(0x1e35_a7bd, 16),
        has_threes: true,
        choice,
        depth,
        good: 259,
        lazy: nice,
        nice,
        far: if matches!(choice, Choice::Greedy) {
            4096
        } else {
            8192
        },
        window: 32_767,
        adapts: true,
        ..ZLIB
    }
}

const fn isal(bits: u32) -> Profile {
    Profile {
        hash: Hash::Castagnoli(bits),
        choice: Choice::Pairs,
        depth: 1,
        nice: 258,
        inner: 3,
        far: 32_768,
        window: 32_768,
        shortest: 4,
        ..ZLIB
    }
}

const fn recent(hash: Hash) -> Profile {
    Profile {
        hash,
        choice: Choice::Recent,
        depth: 64,
        far: 32_768,
        window: 32_768,
        shortest: 4,
        ..ZLIB
    }
}

const fn cheapest(choice: Choice, has_threes: bool, depth: u32, nice: u32, missing: [u32; 3]) -> Profile {
    Profile {
        choice,
        has_threes,
        depth,
        nice,
        missing,
        is_onward: !has_threes,
        is_forced: !has_threes && nice < 258,
        window: if has_threes { 32_767 } else { 32_768 },
        far: 32_768,
        ..ZLIB
    }
}

impl Profile {
    /// Whether the codes of a block are known before its tokens.
    pub(super) fn knows_codes(&self) -> bool {
        self.choice == Choice::Cheapest
    }

    /// How many bytes after its place a parser may look at.
    pub(super) fn ahead(&self) -> u64 {
        match self.choice {
            Choice::Cheapest | Choice::CheapestByLast => super::ahead::OF_CHEAPEST,
            _ => super::ahead::OF_PARSER,
        }
    }
}

/// All profiles.
pub(super) const PROFILES: [Profile; 65] = [
    fast(ZLIB, 4, 8, 4),
    fast(ZLIB, 5, 16, 8),
    fast(ZLIB, 6, 32, 32),
    lazy(ZLIB, 4, 4, 16, 16),
    lazy(ZLIB, 8, 16, 32, 32),
    lazy(ZLIB, 8, 16, 128, 128),
    lazy(ZLIB, 8, 32, 128, 256),
    lazy(ZLIB, 32, 128, 258, 1024),
    lazy(ZLIB, 32, 258, 258, 4096),
    fast(LARGE, 4, 8, 4),
    fast(LARGE, 5, 16, 8),
    fast(LARGE, 6, 32, 32),
    lazy(LARGE, 4, 4, 16, 16),
    lazy(LARGE, 8, 16, 32, 32),
    lazy(LARGE, 8, 16, 128, 128),
    lazy(LARGE, 8, 32, 128, 256),
    lazy(LARGE, 32, 128, 258, 1024),
    lazy(LARGE, 32, 258, 258, 4096),
    fast(GO, 5, 16, 8),
    fast(GO, 6, 32, 32),
    lazy(GO, 4, 4, 16, 16),
    lazy(GO, 8, 16, 32, 32),
    lazy(GO, 8, 16, 128, 128),
    lazy(GO, 8, 32, 128, 256),
    lazy(GO, 32, 128, 258, 1024),
    lazy(GO, 32, 258, 258, 4096),
    Profile {
        inner: 0,
        ..fast(NG, 0, 258, 1)
    },
    Profile {
        gives_up: true,
        last: true,
        ..fast(NG, 4, 8, 4)
    },
    medium(16, 6, Choice::Greedy),
    medium(32, 24, Choice::Greedy),
    medium(32, 32, Choice::Shifting),
    medium(128, 128, Choice::Shifting),
    lazy(NG, 8, 32, 128, 256),
    lazy(NG, 32, 128, 258, 1024),
    lazy(NG, 32, 258, 258, 4096),
    Profile {
        far: 32_768,
        shortest: 4,
        has_threes: false,
        adapts: false,
        hash: Hash::Product(0x1e35_a7bd, 15),
        ..libdeflate(Choice::Greedy, 2, 32)
    },
    libdeflate(Choice::Greedy, 6, 10),
    libdeflate(Choice::Greedy, 12, 14),
    libdeflate(Choice::Greedy, 16, 30),
    libdeflate(Choice::Weighed, 16, 30),
    libdeflate(Choice::Weighed, 35, 65),
    libdeflate(Choice::Weighed, 100, 130),
    libdeflate(Choice::WeighedTwice, 300, 258),
    libdeflate(Choice::WeighedTwice, 600, 258),
    isal(13),
    isal(15),
    recent(Hash::Product(0x1e35_a7bd, 14)),
    recent(Hash::Product(0x1e35_a7bd, 16)),
    lazy(NG, 4, 4, 16, 16),
    lazy(Profile { far: 32_768, ..ZLIB }, 32, 258, 258, 4096),
    Profile {
        gives_up: true,
        inner: 0,
        ..fast(NG, 4, 8, 4)
    },
    Profile {
        hash: Hash::ShiftedFour,
        far: 4096,
        ..lazy(ZLIB, 8, 16, 128, 128)
    },
    Profile {
        hash: Hash::ShiftedFour,
        far: 32768,
        ..lazy(ZLIB, 8, 16, 128, 128)
    },
    Profile {
        hash: Hash::Castagnoli(15),
        far: 4096,
        ..lazy(ZLIB, 8, 16, 128, 128)
    },
    Profile {
        hash: Hash::CastagnoliThree(15),
        far: 4096,
        ..lazy(ZLIB, 8, 16, 128, 128)
    },
    lazy(NG, 8, 16, 128, 128),
    Profile {
        hash: Hash::CastagnoliThree(15),
        far: 4096,
        ..lazy(ZLIB, 32, 258, 258, 4096)
    },
    fast(NG, 4, 8, 4),
    cheapest(Choice::Cheapest, true, 35, 75, [13, 13, 10]),
    cheapest(Choice::Cheapest, true, 100, 150, [13, 13, 10]),
    cheapest(Choice::Cheapest, true, 300, 258, [13, 13, 10]),
    cheapest(Choice::CheapestByLast, false, 32, 32, [11, 11, 6]),
    cheapest(Choice::Cheapest, false, 48, 64, [11, 11, 6]),
    cheapest(Choice::Cheapest, false, 80, 128, [11, 11, 6]),
    cheapest(Choice::Cheapest, false, 1000, 258, [12, 12, 10]),
];
