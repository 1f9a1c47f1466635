//! Follows every order of steps of a machine, breadth first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// The state of everything, and the steps that it allows. `Variant` is the protocol, or what is left of it without one of its rules.
pub(super) trait Machine: Clone + Eq + Hash {
    type Variant: Copy;

    /// All steps that somebody may take next.
    fn steps(&self, variant: Self::Variant) -> Vec<(&'static str, Self)>;
    /// The fault in this state, if there is one.
    fn wrong(&self) -> Option<&'static str>;
    /// All processes are gone.
    fn end_all(&mut self);
    /// The fault in what collections leave when all processes are gone for ever, if there is one.
    fn left_over(self, variant: Self::Variant) -> Option<&'static str>;
}

/// Follows every order of steps; the first state in which something is wrong, with the steps to it.
pub(super) fn explore<M: Machine>(start: M, variant: M::Variant) -> Result<usize, String> {
    let mut known: HashMap<M, Option<(M, &'static str)>> = HashMap::new();
    let mut queue = VecDeque::from([start.clone()]);
    known.insert(start, None);
    // Many states differ only in what clients would have done next.
    let mut settled = HashSet::new();
    while let Some(state) = queue.pop_front() {
        let mut ended = state.clone();
        ended.end_all();
        let is_new = settled.insert(ended.clone());
        let left = || is_new.then(|| ended.left_over(variant)).flatten();
        let wrong = state.wrong().or_else(left);
        if let Some(wrong) = wrong {
            return Err(story(&known, &state, wrong));
        }
        for (step, reached) in state.steps(variant) {
            if !known.contains_key(&reached) {
                known.insert(reached.clone(), Some((state.clone(), step)));
                queue.push_back(reached);
            }
        }
    }
    Ok(known.len())
}

fn story<M: Machine>(known: &HashMap<M, Option<(M, &'static str)>>, end: &M, wrong: &str) -> String {
    let mut steps = Vec::new();
    let mut at = end.clone();
    while let Some(Some((before, step))) = known.get(&at) {
        steps.push(*step);
        at = before.clone();
    }
    steps.reverse();
    format!("{wrong}: {}", steps.join("; "))
}
