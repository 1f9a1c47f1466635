//! Lengths of code words by Huffman's algorithm, with ties decided as zlib and GNU gzip decide them.
//!
//! Many codes are equally good for the same counts. Which one comes out depends on the order in which a binary heap gives up nodes of equal weight,
//! so the heap here moves its nodes exactly as theirs does. It sorts by count, then by the height of the subtree. Words that come out too long are
//! shortened by moving leaves within the lengths, not by building another tree.

/// The lengths of the words for these counts, `limit` bits at most, up to the last symbol that has a word. There are two words at least, since
/// readers want a whole code: symbols that do not occur get the missing ones.
pub(super) fn word_lengths(counts: &[u32], limit: u8) -> Vec<u8> {
    let mut heap = Heap::new(counts.len());
    let mut after_last = 0;
    for (symbol, &count) in counts.iter().enumerate() {
        if count > 0 {
            heap.append(symbol, count);
            after_last = symbol + 1;
        }
    }
    while heap.count() < 2 {
        let symbol = if after_last < 3 { after_last } else { 0 };
        heap.append(symbol, 1);
        after_last = after_last.max(symbol + 1);
    }
    let joined = heap.join();
    let mut lengths = joined.leaf_lengths(limit);
    lengths.truncate(after_last);
    lengths
}

/// Nodes of a tree in the making. Leaves have the numbers of their symbols, and inner nodes those after them.
struct Heap {
    /// Number of symbols.
    symbols: usize,
    /// The heap. The sons of place `n` are at `2n` and `2n + 1`; place 0 is not used.
    places: Vec<u16>,
    /// Of each node: its count, and in the lowest byte the height of its subtree.
    keys: Vec<u32>,
}

/// All nodes in one tree.
struct Joined {
    symbols: usize,
    /// Of each node but the root.
    parents: Vec<u16>,
    /// The nodes as the heap gave them up: rising counts, the root last.
    order: Vec<u16>,
}

impl Heap {
    fn new(symbols: usize) -> Heap {
        Heap {
            symbols,
            places: vec![0],
            keys: vec![0; 2 * symbols],
        }
    }

    fn count(&self) -> usize {
        self.places.len() - 1
    }

    fn append(&mut self, symbol: usize, count: u32) {
        self.keys[symbol] = count << 8;
        self.places.push(symbol as u16);
    }

    fn key(&self, place: usize) -> u32 {
        self.keys[usize::from(self.places[place])]
    }

    /// Moves the node of a place down until its sons are not smaller. The last place for a tie is the left one.
    fn sift(&mut self, mut place: usize) {
        let node = self.places[place];
        let key = self.keys[usize::from(node)];
        loop {
            let mut son = 2 * place;
            if son > self.count() {
                break;
            }
            if son < self.count() && self.key(son + 1) <= self.key(son) {
                son += 1;
            }
            if key <= self.key(son) {
                break;
            }
            self.places[place] = self.places[son];
            place = son;
        }
        self.places[place] = node;
    }

    /// Joins the two smallest nodes until one is left.
    fn join(mut self) -> Joined {
        for place in (1..=self.count() / 2).rev() {
            self.sift(place);
        }
        let mut parents = vec![0_u16; 2 * self.symbols];
        let mut order = Vec::with_capacity(2 * self.count());
        for parent in self.symbols.. {
            let smallest = self.places[1];
            if let Some(last) = self.places.pop()
                && self.count() > 0
            {
                self.places[1] = last;
                self.sift(1);
            }
            let next = self.places[1];
            order.extend([smallest, next]);
            let (a, b) = (self.keys[usize::from(smallest)], self.keys[usize::from(next)]);
            self.keys[parent] = (a & !0xff) + (b & !0xff) + (a & 0xff).max(b & 0xff) + 1;
            parents[usize::from(smallest)] = parent as u16;
            parents[usize::from(next)] = parent as u16;
            self.places[1] = parent as u16;
            self.sift(1);
            if self.count() == 1 {
                order.push(parent as u16);
                break;
            }
        }
        Joined {
            symbols: self.symbols,
            parents,
            order,
        }
    }
}

impl Joined {
    /// How far each leaf is from the root, at most `limit`.
    fn leaf_lengths(&self, limit: u8) -> Vec<u8> {
        let mut lengths = vec![0_u8; self.parents.len()];
        let mut leaves_of = [0_u16; 16];
        let mut too_long = 0_i32;
        for &node in self.order.iter().rev().skip(1) {
            let node = usize::from(node);
            let mut length = lengths[usize::from(self.parents[node])] + 1;
            if length > limit {
                length = limit;
                too_long += 1;
            }
            lengths[node] = length;
            leaves_of[usize::from(length)] += u16::from(node < self.symbols);
        }
        if too_long > 0 {
            shorten(&mut leaves_of, usize::from(limit), too_long);
            let mut leaves = self
                .order
                .iter()
                .filter(|&&node| usize::from(node) < self.symbols);
            for length in (1..=limit).rev() {
                for &leaf in leaves.by_ref().take(usize::from(leaves_of[usize::from(length)])) {
                    lengths[usize::from(leaf)] = length;
                }
            }
        }
        lengths.truncate(self.symbols);
        lengths
    }
}

/// Makes room for nodes that were cut off at the longest length. Each step takes two of them, and makes a leaf that is as long as can be, but
/// shorter than the limit, an inner node with two leaves.
fn shorten(leaves_of: &mut [u16; 16], limit: usize, mut too_long: i32) {
    while too_long > 0 {
        let Some(length) = (1..limit).rev().find(|&length| leaves_of[length] > 0) else {
            return;
        };
        leaves_of[length] -= 1;
        leaves_of[length + 1] += 2;
        leaves_of[limit] -= 1;
        too_long -= 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts that make words as long as there are symbols.
    fn fibonacci(count: usize) -> Vec<u32> {
        let mut counts = vec![1, 1];
        while counts.len() < count {
            counts.push(counts[counts.len() - 1] + counts[counts.len() - 2]);
        }
        counts
    }

    #[test]
    fn a_code_has_two_words_at_least() {
        assert_eq!(word_lengths(&[0; 30], 15), [1, 1]);
        assert_eq!(word_lengths(&[0, 5, 0, 0], 15), [0, 1, 1]);
        assert_eq!(word_lengths(&[0, 0, 0, 5], 15), [1, 0, 0, 1]);
        assert_eq!(word_lengths(&[7, 0, 0, 0], 15), [1, 1]);
    }

    #[test]
    fn words_are_no_longer_than_the_limit() {
        let lengths = word_lengths(&fibonacci(19), 7);
        assert_eq!(lengths.iter().max(), Some(&7));
        let lengths = word_lengths(&fibonacci(20), 15);
        assert_eq!(lengths.iter().max(), Some(&15));
    }

    proptest! {
        #[test]
        fn the_words_make_a_whole_code(counts in prop::collection::vec(prop_oneof![Just(0_u32), 0..40_u32, 0..100_u32], 4..286)) {
            for limit in [15, 9] {
                let lengths = word_lengths(&counts, limit);
                let used: u32 = lengths.iter().filter(|&&length| length > 0).map(|&length| 1 << (15 - length)).sum();
                prop_assert_eq!(used, 1 << 15);
            }
        }
    }
}
