//! Files that reach each other.

use std::collections::BTreeSet;

/// The sets of files that reach each other by `uses`, of at least two files each.
pub(crate) fn of(files: usize, uses: impl Iterator<Item = (usize, usize)>) -> Vec<BTreeSet<usize>> {
    let mut below = vec![Vec::new(); files];
    for (from, to) in uses {
        below[from].push(to);
    }
    let reached: Vec<BTreeSet<usize>> = (0..files).map(|file| reachable(file, &below)).collect();
    let mut circles = BTreeSet::new();
    for file in 0..files {
        let circle: BTreeSet<usize> = reached[file]
            .iter()
            .copied()
            .filter(|other| reached[*other].contains(&file))
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reachable(from: usize, below: &[Vec<usize>]) -> BTreeSet<usize> {
    let (mut reached, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(file) = todo.pop() {
        for next in &below[file] {
            if reached.insert(*next) {
                todo.push(*next);
            }
        }
    }
    reached
}
