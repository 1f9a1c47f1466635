//! What the match finders of libzstd share: the parameters of a level, and which part of the text a block may reach.

use super::Span;
use crate::frame::Frame;

/// The parameters of one level for one size of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) window_log: u32,
    pub(crate) chain_log: u32,
    pub(crate) hash_log: u32,
    pub(crate) search_log: u32,
    /// How many bytes are hashed.
    pub(crate) least: u32,
    pub(crate) target: u32,
    pub(crate) strategy: Strategy,
}

/// How libzstd looks for copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strategy {
    Fast,
    Double,
    Greedy,
    Lazy,
    Lazy2,
    TreeLazy2,
    Optimal,
}

use Strategy::{Double, Fast, Greedy, Lazy, Lazy2, Optimal, TreeLazy2};

type Row = (u32, u32, u32, u32, u32, u32, Strategy);

/// The levels from 0 (that of the negative ones) to 22, by the size of the input: unknown or above 256 KiB, up to 256, 128 and 16 KiB. All versions
/// from 1.5.0 on have these.
const LEVELS: [[Row; 23]; 4] = [
    [
        (19, 12, 13, 1, 6, 1, Fast),
        (19, 13, 14, 1, 7, 0, Fast),
        (20, 15, 16, 1, 6, 0, Fast),
        (21, 16, 17, 1, 5, 0, Double),
        (21, 18, 18, 1, 5, 0, Double),
        (21, 18, 19, 3, 5, 2, Greedy),
        (21, 18, 19, 3, 5, 4, Lazy),
        (21, 19, 20, 4, 5, 8, Lazy),
        (21, 19, 20, 4, 5, 16, Lazy2),
        (22, 20, 21, 4, 5, 16, Lazy2),
        (22, 21, 22, 5, 5, 16, Lazy2),
        (22, 21, 22, 6, 5, 16, Lazy2),
        (22, 22, 23, 6, 5, 32, Lazy2),
        (22, 22, 22, 4, 5, 32, TreeLazy2),
        (22, 22, 23, 5, 5, 32, TreeLazy2),
        (22, 23, 23, 6, 5, 32, TreeLazy2),
        (22, 22, 22, 5, 5, 48, Optimal),
        (23, 23, 22, 5, 4, 64, Optimal),
        (23, 23, 22, 6, 3, 64, Optimal),
        (23, 24, 22, 7, 3, 256, Optimal),
        (25, 25, 23, 7, 3, 256, Optimal),
        (26, 26, 24, 7, 3, 512, Optimal),
        (27, 27, 25, 9, 3, 999, Optimal),
    ],
    [
        (18, 12, 13, 1, 5, 1, Fast),
        (18, 13, 14, 1, 6, 0, Fast),
        (18, 14, 14, 1, 5, 0, Double),
        (18, 16, 16, 1, 4, 0, Double),
        (18, 16, 17, 3, 5, 2, Greedy),
        (18, 17, 18, 5, 5, 2, Greedy),
        (18, 18, 19, 3, 5, 4, Lazy),
        (18, 18, 19, 4, 4, 4, Lazy),
        (18, 18, 19, 4, 4, 8, Lazy2),
        (18, 18, 19, 5, 4, 8, Lazy2),
        (18, 18, 19, 6, 4, 8, Lazy2),
        (18, 18, 19, 5, 4, 12, TreeLazy2),
        (18, 19, 19, 7, 4, 12, TreeLazy2),
        (18, 18, 19, 4, 4, 16, Optimal),
        (18, 18, 19, 4, 3, 32, Optimal),
        (18, 18, 19, 6, 3, 128, Optimal),
        (18, 19, 19, 6, 3, 128, Optimal),
        (18, 19, 19, 8, 3, 256, Optimal),
        (18, 19, 19, 6, 3, 128, Optimal),
        (18, 19, 19, 8, 3, 256, Optimal),
        (18, 19, 19, 10, 3, 512, Optimal),
        (18, 19, 19, 12, 3, 512, Optimal),
        (18, 19, 19, 13, 3, 999, Optimal),
    ],
    [
        (17, 12, 12, 1, 5, 1, Fast),
        (17, 12, 13, 1, 6, 0, Fast),
        (17, 13, 15, 1, 5, 0, Fast),
        (17, 15, 16, 2, 5, 0, Double),
        (17, 17, 17, 2, 4, 0, Double),
        (17, 16, 17, 3, 4, 2, Greedy),
        (17, 16, 17, 3, 4, 4, Lazy),
        (17, 16, 17, 3, 4, 8, Lazy2),
        (17, 16, 17, 4, 4, 8, Lazy2),
        (17, 16, 17, 5, 4, 8, Lazy2),
        (17, 16, 17, 6, 4, 8, Lazy2),
        (17, 17, 17, 5, 4, 8, TreeLazy2),
        (17, 18, 17, 7, 4, 12, TreeLazy2),
        (17, 18, 17, 3, 4, 12, Optimal),
        (17, 18, 17, 4, 3, 32, Optimal),
        (17, 18, 17, 6, 3, 256, Optimal),
        (17, 18, 17, 6, 3, 128, Optimal),
        (17, 18, 17, 8, 3, 256, Optimal),
        (17, 18, 17, 10, 3, 512, Optimal),
        (17, 18, 17, 5, 3, 256, Optimal),
        (17, 18, 17, 7, 3, 512, Optimal),
        (17, 18, 17, 9, 3, 512, Optimal),
        (17, 18, 17, 11, 3, 999, Optimal),
    ],
    [
        (14, 12, 13, 1, 5, 1, Fast),
        (14, 14, 15, 1, 5, 0, Fast),
        (14, 14, 15, 1, 4, 0, Fast),
        (14, 14, 15, 2, 4, 0, Double),
        (14, 14, 14, 4, 4, 2, Greedy),
        (14, 14, 14, 3, 4, 4, Lazy),
        (14, 14, 14, 4, 4, 8, Lazy2),
        (14, 14, 14, 6, 4, 8, Lazy2),
        (14, 14, 14, 8, 4, 8, Lazy2),
        (14, 15, 14, 5, 4, 8, TreeLazy2),
        (14, 15, 14, 9, 4, 8, TreeLazy2),
        (14, 15, 14, 3, 4, 12, Optimal),
        (14, 15, 14, 4, 3, 24, Optimal),
        (14, 15, 14, 5, 3, 32, Optimal),
        (14, 15, 15, 6, 3, 64, Optimal),
        (14, 15, 15, 7, 3, 256, Optimal),
        (14, 15, 15, 5, 3, 48, Optimal),
        (14, 15, 15, 6, 3, 128, Optimal),
        (14, 15, 15, 7, 3, 256, Optimal),
        (14, 15, 15, 8, 3, 256, Optimal),
        (14, 15, 15, 8, 3, 512, Optimal),
        (14, 15, 15, 9, 3, 512, Optimal),
        (14, 15, 15, 10, 3, 999, Optimal),
    ],
];

impl Parameters {
    /// Those of a level for a frame.
    pub(crate) fn of(level: i8, frame: &Frame) -> Parameters {
        let tier = match frame.size {
            Some(0..=16_384) => 3,
            Some(16_385..=131_072) => 2,
            Some(131_073..=262_144) => 1,
            _ => 0,
        };
        let (window_log, chain_log, hash_log, search_log, least, target, strategy) =
            LEVELS[tier][usize::from(level.clamp(0, 22).unsigned_abs())];
        let mut parameters = Parameters {
            window_log,
            chain_log,
            hash_log,
            search_log,
            least,
            target: if level < 0 {
                u32::from(level.unsigned_abs())
            } else {
                target
            },
            strategy,
        };
        if let Some(size) = frame.size {
            let needed = if size <= 64 { 6 } else { (size - 1).ilog2() + 1 };
            parameters.window_log = window_log.min(needed);
            parameters.hash_log = hash_log.min(parameters.window_log + 1);
            let tree = u32::from(strategy >= TreeLazy2);
            parameters.chain_log = chain_log.min(parameters.window_log + tree);
        }
        parameters.window_log = parameters.window_log.max(10);
        parameters
    }
}

/// How libzstd gets its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// All in one buffer.
    Whole,
    /// Piece by piece: its buffer holds the window and one block, and begins anew when it is full.
    Pieces,
    /// In jobs for several threads. Each begins with empty tables, and with some bytes of the job before; so does the program `zstd`, even with one
    /// thread.
    Jobs,
}

/// Which part of the text a block may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    /// No copy begins before this.
    pub(crate) low: usize,
    /// Where the encoder's buffer begins. What is before it lies elsewhere, and the encoder treats that another way; the same as `low` if there is none.
    pub(crate) prefix: usize,
    /// If a job begins that is not the first one: where the bytes begin that it has of the job before.
    pub(crate) job: Option<usize>,
}

/// How many plain bytes libzstd takes into its buffer at once.
const CHUNK: u64 = 128 << 10;

impl Reach {
    /// That of a block.
    pub(crate) fn of(span: &Span, parameters: &Parameters, input: Input) -> Reach {
        let low = span
            .end
            .saturating_sub(1 << parameters.window_log)
            .max(span.frame);
        match input {
            Input::Whole => Reach {
                low,
                prefix: low,
                job: None,
            },
            Input::Pieces => {
                let window = 1_u64 << parameters.window_log;
                let in_lap = span.position % (window + CHUNK.min(window));
                let prefix = span.start.saturating_sub(in_lap as usize).max(low);
                Reach {
                    low,
                    prefix,
                    job: None,
                }
            }
            Input::Jobs => {
                let (size, overlap) = parameters.jobs();
                let (number, in_job) = (span.position / size, span.position % size);
                if number == 0 {
                    return Reach {
                        low,
                        prefix: low,
                        job: None,
                    };
                }
                let first = span.start.saturating_sub((in_job + overlap) as usize);
                let low = low.max(first);
                Reach {
                    low,
                    prefix: low,
                    job: (in_job == 0).then_some(first),
                }
            }
        }
    }

    /// Whether part of what the block may reach is outside of the encoder's buffer.
    pub(crate) fn has_two_parts(&self) -> bool {
        self.low < self.prefix
    }
}

impl Parameters {
    /// How many bytes a job has, and how many of the one before it gets, too.
    fn jobs(&self) -> (u64, u64) {
        let less = match self.strategy {
            Optimal => 1,
            TreeLazy2 => 2,
            _ => 3,
        };
        (1 << (self.window_log + 2).max(20), (1 << self.window_log) >> less)
    }
}

/// The two last distances, 0 where one reaches back too far.
pub(crate) fn two_distances(span: &Span, place: usize, reach: &Reach, window_log: u32) -> [usize; 2] {
    if reach.job.is_some() {
        return [0; 2];
    }
    let low = place.saturating_sub(1 << window_log).max(span.frame);
    [span.distances.0[0], span.distances.0[1]].map(|distance| {
        let distance = distance as usize;
        if distance > place - low { 0 } else { distance }
    })
}
