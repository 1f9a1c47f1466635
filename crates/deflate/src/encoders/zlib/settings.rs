//! How zlib and GNU gzip set up their matcher at each level.

use super::block::Capacity;
use super::matcher::Effort;
use super::parse::Choice;

/// All that makes the output of one encoder differ from another's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(super) choice: Choice,
    pub(super) effort: Effort,
    pub(super) capacity: Capacity,
    pub(super) hash_bits: u32,
    pub(super) end: End,
}

/// How an encoder behaves near the end of its input, where less is ahead than the matcher wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The window may still move before each token.
    Zlib,
    /// The window moves once at most, when the end is noticed; then two zeros are put after the last byte. Searches see what is in the window after
    /// the end, and none is done near the end of the window.
    Gzip,
}

impl Settings {
    /// zlib at a level from 1 to 9, or -1 for its default, with a memory level from 1 to 9 (8 by default) and a window of 32 KiB.
    pub(crate) fn zlib(level: i32, memory: u32) -> Option<Settings> {
        let level = if level == -1 { 6 } else { level };
        let (choice, effort) = of_level(level)?;
        (1..=9).contains(&memory).then_some(Settings {
            choice,
            effort,
            capacity: Capacity {
                tokens: (1 << (memory + 6)) - 1,
                may_end_early: false,
            },
            hash_bits: memory + 7,
            end: End::Zlib,
        })
    }

    /// GNU gzip at a level from 1 to 9.
    pub(crate) fn gzip(level: i32) -> Option<Settings> {
        let (choice, effort) = of_level(level)?;
        Some(Settings {
            choice,
            effort: Effort {
                is_nice_within_input: false,
                ..effort
            },
            capacity: Capacity {
                tokens: 0x7fff,
                may_end_early: level > 2,
            },
            hash_bits: 15,
            end: End::Gzip,
        })
    }
}

/// The table of levels, which both have since 1993.
fn of_level(level: i32) -> Option<(Choice, Effort)> {
    let greedy = |inserted| Choice::Greedy { inserted };
    let lazy = |enough| Choice::Lazy { enough };
    let (choice, good, nice, chain) = match level {
        1 => (greedy(4), 4, 8, 4),
        2 => (greedy(5), 4, 16, 8),
        3 => (greedy(6), 4, 32, 32),
        4 => (lazy(4), 4, 16, 16),
        5 => (lazy(16), 8, 32, 32),
        6 => (lazy(16), 8, 128, 128),
        7 => (lazy(32), 8, 128, 256),
        8 => (lazy(128), 32, 258, 1024),
        9 => (lazy(258), 32, 258, 4096),
        _ => return None,
    };
    let effort = Effort {
        good,
        nice,
        chain,
        is_nice_within_input: true,
    };
    Some((choice, effort))
}
