//! The lengths of the code words for given frequencies.

/// Symbols of the largest alphabet.
const SYMBOLS: usize = 286;
/// Places of a row of the package merge.
const ROW: usize = 2 * SYMBOLS;
/// The greatest limit that is asked for.
const DEEPEST: usize = 15;

/// Puts the length of each symbol's word into `lengths`, 0 where the frequency is 0. No word is longer than `limit`.
///
/// The lengths are optimal. Where several codes are, it is the one of Go's encoders: the package merge takes a package before a single symbol of the
/// same weight, and among symbols of the same frequency the later one gets the shorter word.
pub(super) fn code_lengths(frequencies: &[u16], limit: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let mut sorted = [0_u32; SYMBOLS];
    let mut count = 0;
    for (symbol, &frequency) in frequencies.iter().enumerate().take(SYMBOLS) {
        if frequency > 0 {
            sorted[count] = u32::from(frequency) << 16 | symbol as u32;
            count += 1;
        }
    }
    let sorted = &mut sorted[..count];
    sorted.sort_unstable();
    let symbol_of = |entry: u32| (entry & 0xffff) as usize;
    if count <= 2 {
        for &entry in sorted.iter() {
            lengths[symbol_of(entry)] = 1;
        }
        return;
    }
    let mut rest = &*sorted;
    let words = words_of_each_length(sorted, limit.min(DEEPEST).min(count - 1));
    for (length, &words) in words.iter().enumerate().skip(1) {
        let (before, these) = rest.split_at(rest.len().saturating_sub(words));
        for &entry in these {
            lengths[symbol_of(entry)] = length as u8;
        }
        rest = before;
    }
}

/// How many words have each length. `sorted` has three entries or more, their frequencies in the upper halves.
fn words_of_each_length(sorted: &[u32], limit: usize) -> [usize; DEEPEST + 1] {
    let wanted = 2 * sorted.len() - 2;
    // Of each row, which of its items are single symbols.
    let mut singles = [[false; ROW]; DEEPEST + 1];
    let mut weights = [0_u32; ROW];
    let mut length = 0;
    for row in singles.iter_mut().take(limit + 1).skip(1) {
        let mut merged = [0_u32; ROW];
        let mut packages = weights[..length]
            .chunks_exact(2)
            .map(|pair| pair[0] + pair[1])
            .peekable();
        let mut symbols = sorted.iter().map(|entry| entry >> 16).peekable();
        length = 0;
        while length < wanted {
            let single = match (packages.peek(), symbols.peek()) {
                (Some(package), Some(symbol)) => symbol < package,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (None, None) => break,
            };
            let next = if single { symbols.next() } else { packages.next() };
            merged[length] = next.unwrap_or_default();
            row[length] = single;
            length += 1;
        }
        weights = merged;
    }
    let mut words = [0; DEEPEST + 1];
    let mut taken = wanted;
    let mut longer = None;
    for (length, row) in singles[1..=limit].iter().rev().enumerate() {
        let symbols = row[..taken].iter().filter(|&&single| single).count();
        if let Some(above) = longer.replace(symbols) {
            words[length] = above - symbols;
        }
        taken = 2 * (taken - symbols);
    }
    words[limit] = longer.unwrap_or_default();
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lengths_of(frequencies: &[u16], limit: usize) -> Vec<u8> {
        let mut lengths = vec![0; frequencies.len()];
        code_lengths(frequencies, limit, &mut lengths);
        lengths
    }

    #[test]
    fn few_symbols_have_words_of_one_bit() {
        assert_eq!(lengths_of(&[0, 0], 15), [0, 0]);
        assert_eq!(lengths_of(&[0, 9], 15), [0, 1]);
        assert_eq!(lengths_of(&[3, 0, 9], 15), [1, 0, 1]);
    }

    #[test]
    fn of_equal_symbols_the_later_ones_have_the_shorter_words() {
        assert_eq!(lengths_of(&[1, 1, 1], 15), [2, 2, 1]);
        assert_eq!(lengths_of(&[5, 5, 5, 5, 5], 15), [3, 3, 2, 2, 2]);
    }

    #[test]
    fn the_limit_holds() {
        let steep: Vec<u16> = (0..16).map(|power| 1 << power).collect();
        assert_eq!(lengths_of(&steep, 15)[0], 15);
        assert!(lengths_of(&steep, 7).iter().all(|&length| length <= 7));
    }

    proptest! {
        #[test]
        fn the_code_is_whole_and_costs_what_huffman_says(frequencies in prop::collection::vec(0..3_000_u16, 3..=286)) {
            let used = frequencies.iter().filter(|&&frequency| frequency > 0).count();
            prop_assume!(used > 2);
            let lengths = lengths_of(&frequencies, 15);
            let space: u32 = lengths.iter().filter(|&&length| length > 0).map(|&length| 1 << (15 - length)).sum();
            prop_assert_eq!(space, 1 << 15);
            let cost: u64 = frequencies.iter().zip(&lengths).map(|(&frequency, &length)| u64::from(frequency) * u64::from(length)).sum();
            let mut heap: std::collections::BinaryHeap<std::cmp::Reverse<u64>> =
                frequencies.iter().filter(|&&frequency| frequency > 0).map(|&frequency| std::cmp::Reverse(u64::from(frequency))).collect();
            let mut best = 0;
            while heap.len() > 1 {
                let pair = heap.pop().unwrap().0 + heap.pop().unwrap().0;
                best += pair;
                heap.push(std::cmp::Reverse(pair));
            }
            prop_assert!(cost >= best);
            if lengths.iter().all(|&length| length < 15) {
                prop_assert_eq!(cost, best);
            }
        }
    }
}
