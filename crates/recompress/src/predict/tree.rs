//! A binary tree of places for each hash, ordered by the bytes there: it finds all longer and longer copies at a place, the nearest of each length
//! (libdeflate and 7-Zip search so where they look for the cheapest way).

use super::chain::Candidate;
use super::window::Window;
use xebec_deflate::format::{COPY_LENGTHS, WINDOW};

const BITS: u32 = 16;
const FACTOR: u32 = 0x1e35_a7bd;
/// Copies that are kept of a place: the first ones and the last.
pub(super) const KEPT: usize = 24;
const LONGEST: u64 = *COPY_LENGTHS.end() as u64;

/// The tree of the window.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    /// The last place of each hash.
    roots: Vec<u32>,
    /// Of each place: the roots of what is less and of what is more than it.
    children: Vec<[u32; 2]>,
    /// The last two places of each hash of three bytes, if copies of three are found by them.
    threes: Vec<[u32; 2]>,
    depth: u32,
    nice: u32,
    window: u32,
}

impl Tree {
    pub(super) fn new(has_threes: bool, depth: u32, nice: u32, window: u32) -> Tree {
        Tree {
            roots: vec![0; 1 << BITS],
            children: vec![[0; 2]; WINDOW],
            threes: vec![[0; 2]; if has_threes { 1 << BITS } else { 0 }],
            depth,
            nice,
            window,
        }
    }

    /// Enters a place and adds the copies that begin there to `found`.
    // One function, since both subtrees change at each step of the walk.
    pub(super) fn enter(&mut self, window: &Window, place: u64, found: &mut Vec<Candidate>) {
        let begin = found.len();
        let (bytes, at) = window.at(place);
        let Some(&[a, b, c, d]) = bytes.get(at..at + 4) else {
            return;
        };
        let three = u32::from_le_bytes([a, b, c, 0]);
        let farthest = self.window.min(at as u32);
        let mut longest = 2;
        let hash = if self.threes.is_empty() {
            three
        } else {
            longest = 3;
            let slot = &mut self.threes[(three.wrapping_mul(FACTOR) >> (32 - BITS)) as usize];
            let last = *slot;
            *slot = [place as u32, last[0]];
            let copy = last.into_iter().find_map(|last| {
                let distance = (place as u32).wrapping_sub(last);
                let is_there = distance > 0 && distance <= farthest;
                (is_there && bytes[at - distance as usize..].starts_with(&[a, b, c]))
                    .then_some(Candidate { length: 3, distance })
            });
            found.extend(copy);
            u32::from_le_bytes([a, b, c, d])
        };
        let root = &mut self.roots[(hash.wrapping_mul(FACTOR) >> (32 - BITS)) as usize];
        let mut node = *root;
        *root = place as u32;
        let most = (bytes.len() - at).min(LONGEST as usize);
        let nice = (self.nice as usize).min(most);
        // Where the next node that is less, or more, than the place goes: a slot of `children`.
        let mut open = [(place as usize % WINDOW, 0), (place as usize % WINDOW, 1)];
        let mut same = [0_usize; 2];
        let mut left = self.depth;
        loop {
            let distance = (place as u32).wrapping_sub(node);
            if distance == 0 || distance > farthest || left == 0 {
                for (node, side) in open {
                    self.children[node][side] = 0;
                }
                return;
            }
            left -= 1;
            let from = at - distance as usize;
            let begins = same[0].min(same[1]);
            let length = begins + super::window::common(bytes, from + begins, at + begins, nice - begins);
            let slot = node as usize % WINDOW;
            if length > longest {
                longest = length;
                if found.len() - begin == KEPT {
                    found.pop();
                }
                found.push(Candidate {
                    length: length as u32,
                    distance,
                });
            }
            if length >= nice {
                let [less, more] = self.children[slot];
                self.children[open[0].0][open[0].1] = less;
                self.children[open[1].0][open[1].1] = more;
                return;
            }
            let is_more = usize::from(bytes[from + length] > bytes[at + length]);
            let (parent, side) = open[is_more];
            self.children[parent][side] = node;
            open[is_more] = (slot, 1 - is_more);
            same[is_more] = length;
            node = self.children[slot][1 - is_more];
        }
    }
}
