//! Which tables and codes an encoder makes of the symbols of a block.
//!
//! libzstd makes them in `FSE_normalizeCount`, `FSE_normalizeM2`, `FSE_optimalTableLog` and `HUF_buildCTable`; klauspost/compress has them from there,
//! with other limits. A guess that is wrong costs some bytes, nothing else.

use super::fse::Counts;
use super::huffman::{LONGEST, WEIGHTS_LOG_MOST};

/// What one encoder does otherwise than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Tables of sequences have so many states at most: the logarithms.
    pub(crate) logs_most: [u32; 3],
    /// From so many sequences on, symbols of less than one state are told so.
    pub(crate) low_from: u32,
    /// Whether the last symbol, whose state is told apart, is not counted.
    pub(crate) leaves_out_last: bool,
}

/// libzstd.
pub(crate) const LIBZSTD: Habits = Habits {
    logs_most: [9, 8, 9],
    low_from: 2048,
    leaves_out_last: true,
};

/// klauspost/compress.
pub(crate) const KLAUSPOST: Habits = Habits {
    logs_most: [8, 8, 8],
    low_from: 0,
    leaves_out_last: false,
};

impl Habits {
    /// The table of the kind `kind` (literal lengths, offsets, copy lengths) for codes that occur so often, the last of which is `last`.
    pub(crate) fn table(&self, kind: usize, counts: &[u32], last: u8) -> Option<Counts> {
        let total: u32 = counts.iter().sum();
        let mut counts = counts.to_vec();
        while counts.last() == Some(&0) {
            counts.pop();
        }
        let log = table_log(self.logs_most[kind], total, counts.len(), 2)?;
        let mut counted = total;
        if self.leaves_out_last
            && let Some(count) = counts.get_mut(usize::from(last)).filter(|count| **count > 1)
        {
            *count -= 1;
            counted -= 1;
        }
        normalize(&counts, counted, log, counted >= self.low_from)
    }
}

/// The lengths of the code for literals that occur so often, of words of up to `longest` bits. Symbols of the same frequent count are sorted by their
/// numbers, or as an unstable quicksort leaves them (libzstd from 1.5.5 on, perhaps earlier).
pub(crate) fn code(counts: &[u32; 256], longest: u32, quick: bool) -> Option<Vec<u8>> {
    let mut sorted: Vec<(u32, u8)> = (0..=255)
        .map(|symbol| (counts[usize::from(symbol)], symbol))
        .collect();
    let last = sorted.iter().rposition(|&(count, _)| count > 0)?;
    sorted.truncate(last + 1);
    sorted.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
    if quick {
        sort_as_libzstd(counts, last, &mut sorted);
    }
    sorted.retain(|&(count, _)| count > 0);
    if sorted.len() < 2 {
        return None;
    }
    let mut depths = depths(&sorted);
    limit(&sorted, &mut depths, longest)?;
    let mut lengths = vec![0; last + 1];
    for (&(_, symbol), depth) in sorted.iter().zip(depths) {
        lengths[usize::from(symbol)] = depth;
    }
    Some(lengths)
}

/// How long the words of a code for literals are at most.
pub(crate) fn longest(counts: &[u32; 256]) -> u32 {
    let total: u32 = counts.iter().sum();
    let symbols = counts
        .iter()
        .rposition(|&count| count > 0)
        .map_or(0, |last| last + 1);
    table_log(LONGEST, total, symbols, 1).unwrap_or(LONGEST)
}

/// The table by which the weights of a code are told, or `None` if they are told without one.
pub(crate) fn weights_table(lengths: &[u8]) -> Option<Counts> {
    let longest = lengths.iter().copied().max()?;
    let told = &lengths[..lengths.len() - 1];
    let mut counts = [0_u32; LONGEST as usize + 2];
    for &length in told {
        counts[usize::from(if length == 0 { 0 } else { longest + 1 - length })] += 1;
    }
    let most = *counts.iter().max()?;
    let last = counts.iter().rposition(|&count| count > 0)?;
    if told.len() < 2 || most as usize == told.len() || most == 1 {
        return None;
    }
    let log = table_log(WEIGHTS_LOG_MOST, told.len() as u32, last + 1, 2)?;
    normalize(&counts[..=last], told.len() as u32, log, false)
}

/// The logarithm of a table's size for `total` symbols out of an alphabet of `symbols`.
fn table_log(most: u32, total: u32, symbols: usize, less: u32) -> Option<u32> {
    let by_total = total.checked_sub(1)?.checked_ilog2()?.saturating_sub(less);
    let by_symbols = (symbols as u32).checked_sub(1)?.checked_ilog2().unwrap_or(0) + 2;
    let least = by_symbols.min(total.ilog2() + 1);
    Some(most.min(by_total).max(least).clamp(5, 12))
}

/// Counts that make up a table of two to the power of `log` states, or `None` if they cannot.
fn normalize(counts: &[u32], total: u32, log: u32, has_low: bool) -> Option<Counts> {
    /// By how much a share of a few states must be above a whole number to get one more, in parts of a million or so.
    const ROUND_UP: [u64; 8] = [0, 473_195, 504_333, 520_860, 550_000, 700_000, 750_000, 830_000];
    if total == 0 || counts.contains(&total) {
        return None;
    }
    let scale = 62 - u64::from(log);
    let step = (1 << 62) / u64::from(total);
    let low = total >> log;
    let mut left = 1_i32 << log;
    let (mut largest, mut largest_share) = (0, 0);
    let mut shares = vec![0_i16; counts.len()];
    for (symbol, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        if count <= low {
            shares[symbol] = if has_low { -1 } else { 1 };
            left -= 1;
            continue;
        }
        let exact = u64::from(count) * step;
        let mut share = exact >> scale;
        if let Some(&more) = ROUND_UP.get(share as usize) {
            share += u64::from(exact - (share << scale) > more << (scale - 20));
        }
        if share > largest_share {
            (largest, largest_share) = (symbol, share);
        }
        shares[symbol] = share as i16;
        left -= share as i32;
    }
    if -left >= i32::from(shares[largest]) >> 1 {
        shares = normalize_otherwise(counts, total, log, has_low)?;
    } else {
        shares[largest] += left as i16;
    }
    let table = Counts { log, counts: shares };
    table.is_whole().then_some(table)
}

/// For when rounding gives away more than the most frequent symbol has.
fn normalize_otherwise(counts: &[u32], total: u32, log: u32, has_low: bool) -> Option<Vec<i16>> {
    const OPEN: i16 = -2;
    let low = total >> log;
    let mut one = ((u64::from(total) * 3) >> (log + 1)) as u32;
    let mut total = total;
    let mut given = 0_u32;
    let mut shares = vec![0_i16; counts.len()];
    for (share, &count) in shares.iter_mut().zip(counts).filter(|(_, count)| **count > 0) {
        *share = if count <= low {
            if has_low { -1 } else { 1 }
        } else if count <= one {
            1
        } else {
            OPEN
        };
        if *share != OPEN {
            given += 1;
            total -= count;
        }
    }
    let mut left = (1_u32 << log).checked_sub(given).filter(|&left| left > 0)?;
    if total / left > one {
        one = (u64::from(total) * 3 / u64::from(left * 2)) as u32;
        for (share, &count) in shares.iter_mut().zip(counts) {
            if *share == OPEN && count <= one {
                *share = 1;
                given += 1;
                total -= count;
            }
        }
        left = (1_u32 << log).checked_sub(given).filter(|&left| left > 0)?;
    }
    if given as usize == counts.len() || total == 0 {
        // The encoders hand out the rest here. This is so rare that it is not worth a guess.
        return None;
    }
    let scale = 62 - u64::from(log);
    let half = (1_u64 << (scale - 1)) - 1;
    let step = ((1_u64 << scale) * u64::from(left) + half) / u64::from(total);
    let mut before = half;
    for (share, &count) in shares.iter_mut().zip(counts).filter(|(share, _)| **share == OPEN) {
        let after = before + u64::from(count) * step;
        *share = ((after >> scale) - (before >> scale)) as i16;
        if *share < 1 {
            return None;
        }
        before = after;
    }
    Some(shares)
}

/// libzstd's order of symbols: one bucket for each small count, one for each power of two above, and those sorted in place.
fn sort_as_libzstd(counts: &[u32; 256], last: usize, sorted: &mut [(u32, u8)]) {
    const DISTINCT: u32 = 165;
    let bucket = |count: u32| {
        if count < DISTINCT {
            count
        } else {
            1000 + count.ilog2()
        }
    };
    let mut fresh: Vec<(u32, u8)> = (0..=last).map(|symbol| (counts[symbol], symbol as u8)).collect();
    fresh.sort_by_key(|&(count, _)| std::cmp::Reverse(bucket(count)));
    let mut rest = fresh.as_mut_slice();
    while let Some(&(count, _)) = rest.first() {
        let length = rest
            .iter()
            .take_while(|(other, _)| bucket(*other) == bucket(count))
            .count();
        let (some, after) = rest.split_at_mut(length);
        if count >= DISTINCT {
            quick_sort(some);
        }
        rest = after;
    }
    sorted.copy_from_slice(&fresh);
}

/// Falling counts. Short slices are sorted by insertion; of others the last one is the pivot.
fn quick_sort(mut nodes: &mut [(u32, u8)]) {
    const SHORT: usize = 8;
    if nodes.len() <= SHORT {
        nodes.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
        return;
    }
    while nodes.len() > 1 {
        let pivot = nodes[nodes.len() - 1].0;
        let mut place = 0;
        for other in 0..nodes.len() - 1 {
            if nodes[other].0 > pivot {
                nodes.swap(place, other);
                place += 1;
            }
        }
        let end = nodes.len() - 1;
        nodes.swap(place, end);
        let (before, after) = nodes.split_at_mut(place);
        let after = &mut after[1..];
        if before.len() < after.len() {
            quick_sort(before);
            nodes = after;
        } else {
            quick_sort(after);
            nodes = before;
        }
    }
}

/// How deep each symbol is in a tree over symbols of falling counts; of equal counts a joined node is taken last.
fn depths(sorted: &[(u32, u8)]) -> Vec<u8> {
    let symbols = sorted.len();
    let mut parents = vec![0; 2 * symbols - 1];
    let mut joined: Vec<u32> = Vec::with_capacity(symbols);
    let (mut symbol, mut node) = (symbols, 0);
    while joined.len() < symbols - 1 {
        let mut sum = 0;
        for _ in 0..2 {
            let of_symbol = symbol.checked_sub(1).map(|place| sorted[place].0);
            let is_symbol = match (of_symbol, joined.get(node)) {
                (Some(count), Some(&other)) => count < other,
                (count, _) => count.is_some(),
            };
            let place = if is_symbol {
                symbol -= 1;
                symbol
            } else {
                node += 1;
                symbols + node - 1
            };
            sum += if is_symbol {
                sorted[symbol].0
            } else {
                joined[node - 1]
            };
            parents[place] = symbols + joined.len();
        }
        joined.push(sum);
    }
    let mut depths = vec![0_u8; 2 * symbols - 1];
    for place in (0..2 * symbols - 2).rev() {
        depths[place] = depths[parents[place]].saturating_add(1);
    }
    depths.truncate(symbols);
    depths
}

/// Makes words that are too long as short as they may be, and others longer for it: those that cost the least.
fn limit(sorted: &[(u32, u8)], depths: &mut [u8], longest: u32) -> Option<()> {
    let most = longest as u8;
    let deepest = *depths.last()?;
    if deepest <= most {
        return Some(());
    }
    let excess = u32::from(deepest - most);
    let mut debt = 0_i64;
    let mut place = depths.len() - 1;
    while depths[place] > most {
        debt += (1_i64 << excess) - (1 << (deepest - depths[place]));
        depths[place] = most;
        place = place.checked_sub(1)?;
    }
    while depths[place] == most {
        place = place.checked_sub(1)?;
    }
    debt >>= excess;
    // Of each length that is shorter by so many bits: the last symbol.
    let mut last = [None; LONGEST as usize + 2];
    let mut shorter = most;
    for at in (0..=place).rev() {
        if depths[at] < shorter {
            shorter = depths[at];
            last[usize::from(most - shorter)] = Some(at);
        }
    }
    while debt > 0 {
        debt -= lengthen(sorted, depths, &mut last, debt, most)?;
    }
    while debt < 0 {
        let at = match last[1] {
            Some(at) => at + 1,
            None => {
                while depths[place] == most {
                    place = place.checked_sub(1)?;
                }
                place + 1
            }
        };
        *depths.get_mut(at)? -= 1;
        last[1] = Some(at);
        debt += 1;
    }
    Some(())
}

/// Makes one word longer by a bit, and returns how much that is worth.
fn lengthen(
    sorted: &[(u32, u8)],
    depths: &mut [u8],
    last: &mut [Option<usize>; LONGEST as usize + 2],
    debt: i64,
    most: u8,
) -> Option<i64> {
    let mut bits = debt.ilog2() as usize + 1;
    while bits > 1 {
        match (
            last.get(bits).copied().flatten(),
            last.get(bits - 1).copied().flatten(),
        ) {
            (None, _) => {}
            (Some(_), None) => break,
            (Some(high), Some(low)) if sorted[high].0 <= 2 * sorted[low].0 => break,
            _ => {}
        }
        bits -= 1;
    }
    while last.get(bits)?.is_none() {
        bits += 1;
    }
    let at = last[bits]?;
    if last[bits - 1].is_none() {
        last[bits - 1] = Some(at);
    }
    depths[at] += 1;
    last[bits] = at
        .checked_sub(1)
        .filter(|&before| usize::from(depths[before]) == usize::from(most) - bits);
    Some(1 << (bits - 1))
}
