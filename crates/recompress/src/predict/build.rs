//! Lengths of code words from frequencies, as encoders choose them. All make codes of (nearly) the same size; they differ in what they do with equal
//! frequencies and with words that become too long.

/// The encoders that build codes in this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builder {
    /// A heap that prefers the flatter of two subtrees with equal frequencies; words too long are made shorter at the cost of others (zlib).
    Heap,
    /// Two queues, a symbol before a subtree of the same frequency; words too long as above (libdeflate, 7-Zip, miniz).
    Queues,
    /// Package-merge, a package before a symbol of the same frequency (Go, zopfli).
    Packages,
}

pub(super) const BUILDERS: [Builder; 3] = [Builder::Heap, Builder::Queues, Builder::Packages];

/// The lengths of the words of the symbols with these frequencies (0: the symbol has none), `longest` bits at most.
pub(super) fn lengths(builder: Builder, frequencies: &[u32], longest: usize) -> Vec<u8> {
    let mut used: Vec<(u32, u16)> = Vec::with_capacity(frequencies.len());
    used.extend(
        (0_u16..)
            .zip(frequencies)
            .filter(|(_, count)| **count > 0)
            .map(|(symbol, &count)| (count, symbol)),
    );
    let mut lengths = vec![0; frequencies.len()];
    if used.len() < 2 {
        few(builder, &used, &mut lengths);
        return lengths;
    }
    if builder == Builder::Heap {
        heap(&used, longest, &mut lengths);
        return lengths;
    }
    used.sort_unstable();
    let counts = match builder {
        Builder::Packages => packages(&used, longest),
        _ => queues(&used, longest),
    };
    spread(used.iter().map(|&(_, symbol)| symbol), &counts, &mut lengths);
    lengths
}

/// The symbols come from the rarest on; the longest words go first.
fn spread(symbols: impl Iterator<Item = u16>, counts: &[u32], lengths: &mut [u8]) {
    let by_length = counts.iter().enumerate().rev();
    let words = by_length.flat_map(|(length, &count)| std::iter::repeat_n(length as u8, count as usize));
    for (symbol, length) in symbols.zip(words) {
        lengths[usize::from(symbol)] = length;
    }
}

/// Codes of one symbol, or of none: most encoders make two words, so that the code is whole.
fn few(builder: Builder, used: &[(u32, u16)], lengths: &mut [u8]) {
    let only = used.first().map(|&(_, symbol)| usize::from(symbol));
    match (builder, only) {
        (Builder::Packages, only) => lengths[only.unwrap_or_default()] = 1,
        (_, None) => lengths[..2].fill(1),
        (_, Some(only)) => {
            lengths[only] = 1;
            lengths[usize::from(only == 0)] = 1;
        }
    }
}

/// A heap whose places are those of zlib's: the order of what has equal frequency and depth comes from them.
struct Heap {
    /// Nodes: symbols by their place in `used`, then subtrees.
    nodes: Vec<u16>,
    /// Frequency and depth of each node.
    weights: Vec<(u64, u8)>,
}

impl Heap {
    fn sink(&mut self, mut place: usize) {
        let node = self.nodes[place];
        let weight = self.weights[usize::from(node)];
        loop {
            let mut child = 2 * place + 1;
            let Some(&first) = self.nodes.get(child) else {
                break;
            };
            let mut least = self.weights[usize::from(first)];
            if let Some(&second) = self.nodes.get(child + 1)
                && self.weights[usize::from(second)] <= least
            {
                child += 1;
                least = self.weights[usize::from(second)];
            }
            if weight <= least {
                break;
            }
            self.nodes[place] = self.nodes[child];
            place = child;
        }
        self.nodes[place] = node;
    }
}

fn heap(used: &[(u32, u16)], longest: usize, lengths: &mut [u8]) {
    let symbols = used.len();
    let mut heap = Heap {
        nodes: (0..symbols as u16).collect(),
        weights: used.iter().map(|&(count, _)| (u64::from(count), 0)).collect(),
    };
    for place in (0..symbols / 2).rev() {
        heap.sink(place);
    }
    // The nodes in the order in which they leave the heap, and the subtree that each goes into.
    let mut order = Vec::with_capacity(2 * symbols);
    let mut parents = vec![0_u16; 2 * symbols];
    while heap.nodes.len() > 1 {
        let one = heap.nodes[0];
        let last = heap.nodes.pop().unwrap_or_default();
        heap.nodes[0] = last;
        heap.sink(0);
        let other = heap.nodes[0];
        let ((one_weight, one_depth), (weight, depth)) =
            (heap.weights[usize::from(one)], heap.weights[usize::from(other)]);
        let parent = heap.weights.len() as u16;
        heap.weights.push((one_weight + weight, one_depth.max(depth) + 1));
        order.extend([one, other]);
        (parents[usize::from(one)], parents[usize::from(other)]) = (parent, parent);
        heap.nodes[0] = parent;
        heap.sink(0);
    }
    let mut depths = vec![0; heap.weights.len()];
    let mut counts = vec![0; longest + 1];
    let mut too_long = 0_i32;
    for &node in order.iter().rev() {
        let depth = depths[usize::from(parents[usize::from(node)])] + 1;
        too_long += i32::from(depth > longest);
        let depth = depth.min(longest);
        depths[usize::from(node)] = depth;
        if usize::from(node) < symbols {
            counts[depth] += 1;
        }
    }
    while too_long > 0 {
        let Some(shorter) = (1..longest).rev().find(|&length| counts[length] > 0) else {
            break;
        };
        counts[shorter] -= 1;
        counts[shorter + 1] += 2;
        counts[longest] -= 1;
        too_long -= 2;
    }
    let leaves = order.iter().filter(|&&node| usize::from(node) < symbols);
    spread(leaves.map(|&node| used[usize::from(node)].1), &counts, lengths);
}

/// How many words of each length there are, by two queues: symbols and subtrees, both from the rarest on.
fn queues(used: &[(u32, u16)], longest: usize) -> Vec<u32> {
    let symbols = used.len();
    let mut subtrees: Vec<u64> = Vec::with_capacity(symbols);
    // Of each subtree, the one that it goes into.
    let mut parents = vec![0; symbols];
    let (mut symbol, mut subtree) = (0, 0);
    while subtrees.len() + 1 < symbols {
        let mut weight = 0;
        for _ in 0..2 {
            let is_symbol = symbol < symbols
                && subtrees
                    .get(subtree)
                    .is_none_or(|&least| u64::from(used[symbol].0) <= least);
            if is_symbol {
                weight += u64::from(used[symbol].0);
                symbol += 1;
            } else {
                weight += subtrees[subtree];
                parents[subtree] = subtrees.len();
                subtree += 1;
            }
        }
        subtrees.push(weight);
    }
    // From the root on: a subtree of some depth takes a word away and gives two that are longer.
    let mut counts = vec![0; longest + 1];
    counts[1] = 2;
    let mut depths = vec![0; symbols];
    for node in (0..symbols - 2).rev() {
        let mut depth = depths[parents[node]] + 1;
        depths[node] = depth;
        if depth >= longest {
            depth = longest - 1;
            while counts[depth] == 0 && depth > 1 {
                depth -= 1;
            }
        }
        counts[depth] -= 1;
        counts[depth + 1] += 2;
    }
    counts
}

/// How many words of each length there are, by package-merge.
fn packages(used: &[(u32, u16)], longest: usize) -> Vec<u32> {
    let symbols = used.len();
    let longest = longest.min(symbols - 1);
    // Each level's items in order: its weight, and whether it is a symbol.
    let mut levels: Vec<Vec<(u64, bool)>> = Vec::with_capacity(longest);
    for level in 0..longest {
        let mut items = Vec::with_capacity(2 * symbols);
        let empty = Vec::new();
        let below = if level == 0 { &empty } else { &levels[level - 1] };
        let mut pairs = below.chunks_exact(2).map(|pair| pair[0].0 + pair[1].0).peekable();
        let mut singles = used.iter().map(|&(count, _)| u64::from(count)).peekable();
        loop {
            match (singles.peek(), pairs.peek()) {
                (Some(&single), pair) if pair.is_none_or(|&pair| single < pair) => {
                    items.push((single, true));
                    singles.next();
                }
                (_, Some(&pair)) => {
                    items.push((pair, false));
                    pairs.next();
                }
                _ => break,
            }
        }
        levels.push(items);
    }
    // The first items of the last level; each package among them asks for two of the level below. A symbol's length is how often it is taken.
    let mut taken = 2 * symbols - 2;
    let mut words = vec![0_u32; longest + 1];
    let mut per_level = Vec::with_capacity(longest);
    for items in levels.iter().rev() {
        let singles = items[..taken.min(items.len())]
            .iter()
            .filter(|(_, is_symbol)| *is_symbol)
            .count();
        per_level.push(singles);
        taken = 2 * (taken - singles);
    }
    // The `n`th symbol is taken on as many levels as have more than `n` symbols taken; the numbers fall from the last level on.
    let mut before = 0;
    for (place, singles) in per_level.iter().enumerate().rev() {
        words[place + 1] += (singles - before) as u32;
        before = *singles;
    }
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(frequencies: &[u32], lengths: &[u8]) -> u64 {
        frequencies
            .iter()
            .zip(lengths)
            .map(|(count, length)| u64::from(*count) * u64::from(*length))
            .sum()
    }

    proptest! {
        #[test]
        fn codes_are_whole_and_as_short_as_the_best(frequencies in prop::collection::vec(prop_oneof![Just(0_u32), 0..5_u32, 0..5000_u32, 0..1_000_000_u32], 3..286),
                                                    longest in 9..=15_usize) {
            prop_assume!(frequencies.iter().filter(|count| **count > 0).count() > 1);
            let best = size(&frequencies, &lengths(Builder::Packages, &frequencies, longest));
            for builder in BUILDERS {
                let made = lengths(builder, &frequencies, longest);
                let whole: u32 = made.iter().filter(|length| **length > 0).map(|length| 1 << (15 - length)).sum();
                prop_assert_eq!(whole, 1 << 15, "{:?} {:?}", builder, made);
                prop_assert!(made.iter().zip(&frequencies).all(|(length, count)| (*length == 0) == (*count == 0)));
                let made = size(&frequencies, &made);
                prop_assert!(made >= best && made <= best + best / 10, "{:?} {} {}", builder, made, best);
            }
        }
    }

    #[test]
    fn steep_frequencies_keep_to_the_limit() {
        let mut frequencies: Vec<u32> = vec![1, 1];
        for place in 0..30 {
            frequencies.push(frequencies[place] + frequencies[place + 1]);
        }
        for builder in BUILDERS {
            for longest in [7, 15] {
                let made = lengths(builder, &frequencies, longest);
                let whole: u32 = made.iter().map(|length| 1 << (15 - length)).sum();
                assert_eq!(whole, 1 << 15, "{builder:?} {made:?}");
            }
        }
    }
}
