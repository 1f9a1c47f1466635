//! Limits of memory, numbers of processors and resource limits, in docker's notation.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde_json::{Value, json};
use xebec_kernel::size::Bytes;

use crate::error::ConfinementError;

/// Memory and swap together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySwap {
    /// Both together have at most this size; 0 is as if nothing had been said.
    Limited(Bytes),
    /// The swap is not limited (`-1`).
    Unlimited,
}

impl FromStr for MemorySwap {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        match text {
            "-1" => Ok(Self::Unlimited),
            _ => Ok(Self::Limited(Bytes::or_zero(text)?)),
        }
    }
}

/// The number of processors whose time a container may use, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus(u64);

impl FromStr for Cpus {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        let wrong = || ConfinementError::CpusText(text.to_owned());
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number: f64 = text.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
        let thousandths = (number * 1000.0).round();
        // The kernel takes no quota below a millisecond, a hundredth of the period. 0 is no limit, as in docker.
        if number != 0.0 && !(10.0..1e9).contains(&thousandths) {
            return Err(wrong());
        }
        Ok(Self(thousandths as u64))
    }
}

impl Cpus {
    /// Whether there is no limit.
    pub fn is_unlimited(self) -> bool {
        self.0 == 0
    }

    /// The number of processors, in thousandths.
    pub fn thousandths(self) -> u64 {
        self.0
    }

    /// The number of processors.
    pub(super) fn number(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// Whether it is more than a host with so many processors has.
    pub(super) fn exceeds(self, processors: usize) -> bool {
        self.0 > (processors as u64).saturating_mul(1000)
    }

    /// The time of these processors in a period of time.
    pub(super) fn share_of(self, period: u64) -> u64 {
        self.0.saturating_mul(period) / 1000
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.number())
    }
}

/// A list of processors, or of nodes of memory: `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet(String);

impl FromStr for CpuSet {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        let number = |text: &str| text.parse::<u16>().ok();
        let is_range = |range: &str| match range.split_once('-') {
            None => number(range).is_some(),
            Some((first, last)) => {
                matches!((number(first), number(last)), (Some(first), Some(last)) if first <= last)
            }
        };
        match text.split(',').all(is_range) {
            true => Ok(Self(text.to_owned())),
            false => Err(ConfinementError::CpuSet(text.to_owned())),
        }
    }
}

impl CpuSet {
    /// Whether all that it names are in another list.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let there: Vec<_> = other.ranges().collect();
        let is_there = |number: u16| there.iter().any(|range| range.contains(&number));
        self.ranges().flatten().all(is_there)
    }

    fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        self.0.split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The limit of processes and threads of a container. `None` for no limit (`0` or `-1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidsLimit(pub Option<i64>);

impl FromStr for PidsLimit {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        match text.parse() {
            Ok(-1 | 0) => Ok(Self(None)),
            Ok(limit) if limit > 0 => Ok(Self(Some(limit))),
            _ => Err(ConfinementError::PidsLimit(text.to_owned())),
        }
    }
}

/// Resource limits of a process (`getrlimit(2)`), by docker's names.
const ULIMITS: [&str; 15] = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];

/// A resource limit of each process: `nofile=1024:2048` (soft and hard), or one number for both; `-1` for no
/// limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ulimit {
    /// Its name, as `nofile`.
    pub name: &'static str,
    soft: u64,
    hard: u64,
}

impl FromStr for Ulimit {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        let wrong = |reason| ConfinementError::Ulimit {
            ulimit: text.to_owned(),
            reason,
        };
        let shape = "write it as NAME=SOFT[:HARD], in numbers, -1 for no limit";
        let (name, values) = text.split_once('=').ok_or_else(|| wrong(shape))?;
        let name = ULIMITS.iter().find(|known| **known == name).ok_or_else(|| {
            wrong("there is no such limit; use core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, \
                   rss, rtprio, rttime, sigpending or stack")
        })?;
        let number = |text: &str| match text {
            "-1" => Ok(u64::MAX),
            _ => text.parse().map_err(|_| wrong(shape)),
        };
        let (soft, hard) = match values.split_once(':') {
            Some((soft, hard)) => (number(soft)?, number(hard)?),
            None => (number(values)?, number(values)?),
        };
        if soft > hard {
            return Err(wrong("the soft limit is higher than the hard one"));
        }
        Ok(Self { name, soft, hard })
    }
}

impl Ulimit {
    /// In the form of the runtime's configuration.
    pub fn to_json(&self) -> Value {
        let kind = format!("RLIMIT_{}", self.name.to_ascii_uppercase());
        json!({ "type": kind, "soft": self.soft, "hard": self.hard })
    }
}
