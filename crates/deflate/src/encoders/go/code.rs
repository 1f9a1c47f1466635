//! The lengths of code words, and how a dynamic block tells them.
//!
//! Go makes codes of least size under a bound on the length of a word (package-merge). Many codes have the same least size; which one comes out
//! depends on what is taken first among equals: by number of occurrences, then by symbol, and a package before a symbol of the same weight.

use crate::format::LITERAL_SYMBOLS;
use crate::format::huffman::LONGEST;

/// Low bits of a key that hold the symbol; the number of its occurrences is above them.
const SYMBOL_BITS: u32 = 9;
/// Package-merge looks at twice as many items as there are symbols, less two.
const ITEMS: usize = 2 * LITERAL_SYMBOLS;

/// Repeat the length before 3 to 6 times.
const REPEAT: u8 = 16;
/// 3 to 10 zeros.
const ZEROS: u8 = 17;
/// 11 to 138 zeros.
const MANY_ZEROS: u8 = 18;

/// The symbols that tell lengths of code words, each with the value of its extra bits.
pub(super) type Told = Vec<(u8, u8)>;

/// Sets the length of each symbol's word. `counts` has how often each symbol occurs, less than 2^23 times; a symbol that does not occur gets
/// length 0. No word is longer than `longest`, which must leave enough words for all symbols.
pub(super) fn set_lengths(counts: &[u32], longest: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let mut keys = [0; LITERAL_SYMBOLS];
    let mut occurring = 0;
    for (symbol, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
        keys[occurring] = count << SYMBOL_BITS | symbol as u32;
        occurring += 1;
    }
    let keys = &mut keys[..occurring];
    if occurring > 2 {
        keys.sort_unstable();
        merge_packages(keys, longest.min(occurring - 1), lengths);
    } else {
        // One bit each, also for a symbol that is alone.
        keys.iter().for_each(|&key| lengths[symbol_of(key)] = 1);
    }
}

fn symbol_of(key: u32) -> usize {
    (key & ((1 << SYMBOL_BITS) - 1)) as usize
}

/// The lengths for three symbols or more, whose keys are in order.
///
/// Each row is a list of items in order of weight. The lowest row has the symbols; each other one has the symbols and packages of two items of the
/// row below. The code takes the first `2 n - 2` items of the highest row, and of each lower row the items in the packages it has taken. A symbol's
/// word is as long as the number of rows in which the symbol was taken.
fn merge_packages(keys: &[u32], rows: usize, lengths: &mut [u8]) {
    let symbols = keys.len();
    let most = 2 * symbols - 2;
    let mut weights = [u32::MAX; LITERAL_SYMBOLS + 1];
    for (weight, key) in weights.iter_mut().zip(keys) {
        *weight = key >> SYMBOL_BITS;
    }
    let mut items = [0; ITEMS];
    items[..symbols].copy_from_slice(&weights[..symbols]);
    let mut length = symbols;
    // Of each row: how many of its first items are symbols.
    let mut taken = [[0_u16; ITEMS]; LONGEST];
    for (count, entry) in taken[0].iter_mut().enumerate().take(symbols + 1) {
        *entry = count as u16;
    }
    for row in &mut taken[1..rows] {
        let mut packages = [u32::MAX; LITERAL_SYMBOLS + 1];
        for (package, pair) in packages.iter_mut().zip(items[..length].chunks_exact(2)) {
            *package = pair[0] + pair[1];
        }
        length = most.min(symbols + length / 2);
        let (mut symbol, mut package) = (0, 0);
        for (item, entry) in items.iter_mut().zip(&mut row[1..]).take(length) {
            let is_package = packages[package] <= weights[symbol];
            *item = packages[package].min(weights[symbol]);
            package += usize::from(is_package);
            symbol += usize::from(!is_package);
            *entry = symbol as u16;
        }
    }
    let mut wanted = most;
    for row in taken[..rows].iter().rev() {
        let rarest = usize::from(row[wanted]);
        for &key in &keys[..rarest] {
            lengths[symbol_of(key)] += 1;
        }
        wanted = 2 * (wanted - rarest);
    }
}

/// Appends the symbols that tell these lengths. Runs go on from the literals into the distances, so the caller passes both as one.
pub(super) fn tell(lengths: &[u8], told: &mut Told) {
    for run in lengths.chunk_by(|one, other| one == other) {
        let (length, mut left) = (run[0], run.len());
        if length == 0 {
            while left >= 11 {
                let zeros = left.min(138);
                told.push((MANY_ZEROS, (zeros - 11) as u8));
                left -= zeros;
            }
            if left >= 3 {
                told.push((ZEROS, (left - 3) as u8));
                left = 0;
            }
        } else {
            told.push((length, 0));
            left -= 1;
            while left >= 3 {
                let repeated = left.min(6);
                told.push((REPEAT, (repeated - 3) as u8));
                left -= repeated;
            }
        }
        told.extend(std::iter::repeat_n((length, 0), left));
    }
}

/// How many extra bits follow a symbol that tells lengths.
pub(super) fn extra_bits(symbol: u8) -> u32 {
    match symbol {
        REPEAT => 2,
        ZEROS => 3,
        MANY_ZEROS => 7,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The size of the text in the code.
    fn size(counts: &[u32], lengths: &[u8]) -> u64 {
        counts
            .iter()
            .zip(lengths)
            .map(|(&count, &length)| u64::from(count) * u64::from(length))
            .sum()
    }

    /// The least size of a code without a bound: the sum of all inner nodes of Huffman's tree.
    fn least_size(counts: &[u32]) -> u64 {
        let mut heap: std::collections::BinaryHeap<_> = counts
            .iter()
            .filter(|&&count| count > 0)
            .map(|&count| std::cmp::Reverse(u64::from(count)))
            .collect();
        let mut sum = 0;
        while let (Some(one), Some(other)) = (heap.pop(), heap.pop()) {
            sum += one.0 + other.0;
            heap.push(std::cmp::Reverse(one.0 + other.0));
        }
        sum
    }

    #[test]
    fn few_symbols_have_one_bit_each() {
        let mut lengths = [9; 4];
        set_lengths(&[0, 0, 0, 0], 15, &mut lengths);
        assert_eq!(lengths, [0; 4]);
        set_lengths(&[0, 5, 0, 0], 15, &mut lengths);
        assert_eq!(lengths, [0, 1, 0, 0]);
        set_lengths(&[1, 500, 0, 0], 15, &mut lengths);
        assert_eq!(lengths, [1, 1, 0, 0]);
    }

    #[test]
    fn a_package_comes_before_a_symbol_of_the_same_weight() {
        // The other way round, all four would have length 2, which is as good.
        let mut lengths = [0; 4];
        set_lengths(&[1, 1, 2, 2], 15, &mut lengths);
        assert_eq!(lengths, [3, 3, 2, 1]);
    }

    #[test]
    fn runs_of_lengths_are_told_by_repetition() {
        let told = |lengths: &[u8]| {
            let mut told = Vec::new();
            tell(lengths, &mut told);
            told
        };
        assert_eq!(told(&[5; 9]), [(5, 0), (16, 3), (5, 0), (5, 0)]);
        assert_eq!(told(&[0; 2]), [(0, 0), (0, 0)]);
        assert_eq!(told(&[0; 10]), [(17, 7)]);
        assert_eq!(told(&[0; 140]), [(18, 127), (0, 0), (0, 0)]);
        assert_eq!(told(&[0; 149]), [(18, 127), (18, 0)]);
    }

    proptest! {
        #[test]
        fn lengths_make_a_whole_code_within_the_bound(counts in prop::collection::vec(prop_oneof![0..3_u32, 0..70_000_u32], 3..286),
                                                      tight in any::<bool>()) {
            let occurring = counts.iter().filter(|&&count| count > 0).count();
            prop_assume!(occurring > 2);
            let longest = if tight { occurring.next_power_of_two().ilog2() as usize } else { 15 };
            let mut lengths = vec![0; counts.len()];
            set_lengths(&counts, longest, &mut lengths);
            let words: u32 = lengths.iter().filter(|&&length| length > 0).map(|&length| 1 << (15 - u32::from(length))).sum();
            prop_assert_eq!(words, 1 << 15);
            prop_assert!(lengths.iter().all(|&length| usize::from(length) <= longest));
            prop_assert!(size(&counts, &lengths) >= least_size(&counts));
            if !tight && counts.iter().sum::<u32>() < 1_000 {
                prop_assert_eq!(size(&counts, &lengths), least_size(&counts));
            }
        }
    }
}
