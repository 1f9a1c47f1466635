//! Plans which layers to evict, so that so many bytes are free. It touches nothing.
//!
//! Whole layers go in the policy's order. The last one only gives as much as is needed: its pages from the end of the
//! data space are punched, and its index stays, so that its next start is still quick.

use std::ops::Range;

use xebec_format::PAGE_SIZE;

use crate::policy::{Policy, Resident};
use crate::store::LayerKey;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The layer that gives room.
    pub key: LayerKey,
    /// How it gives room.
    pub action: Action,
    /// About how many bytes it frees.
    pub bytes: u64,
}

/// How a layer gives room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// All of it goes, its index too.
    Remove,
    /// These pages of its data go.
    Punch(Vec<Range<u64>>),
}

/// The steps that free at least `excess` bytes, or everything that may go if that is less. `held` gives the runs of
/// pages that a layer holds, ascending.
pub fn plan(
    policy: &dyn Policy,
    mut residents: Vec<Resident>,
    excess: u64,
    held: impl Fn(LayerKey) -> Vec<Range<u64>>,
) -> Vec<Step> {
    policy.rank(&mut residents);
    let (mut steps, mut left) = (Vec::new(), excess);
    for resident in residents {
        if left == 0 {
            break;
        }
        let step = match resident.disk_bytes > left {
            true => punch(resident.key, left, held(resident.key)),
            false => None,
        };
        let step = step.unwrap_or(Step {
            key: resident.key,
            action: Action::Remove,
            bytes: resident.disk_bytes,
        });
        left = left.saturating_sub(step.bytes);
        steps.push(step);
    }
    steps
}

/// Pages from the end that make up `bytes`; `None` when there are not so many, or it would be nearly all of them.
fn punch(key: LayerKey, bytes: u64, held: Vec<Range<u64>>) -> Option<Step> {
    let pages: u64 = held.iter().map(|run| run.end - run.start).sum();
    let wanted = bytes.div_ceil(PAGE_SIZE);
    if wanted >= pages {
        return None;
    }
    let mut left = wanted;
    let mut runs = Vec::new();
    for run in held.into_iter().rev() {
        if left == 0 {
            break;
        }
        let start = run.end.saturating_sub(left).max(run.start);
        left -= run.end - start;
        runs.push(start..run.end);
    }
    Some(Step {
        key,
        action: Action::Punch(runs),
        bytes: wanted * PAGE_SIZE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LeastRecentlyUsed;
    use std::time::{Duration, SystemTime};
    use xebec_format::digest::Digest;

    fn resident(name: &str, pages: u64, age: u64) -> Resident {
        Resident {
            key: LayerKey {
                layer: Digest::of(name.as_bytes()),
                index: Digest::of(b"index"),
            },
            disk_bytes: pages * PAGE_SIZE,
            last_used: SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age),
        }
    }

    #[test]
    fn the_oldest_go_whole_and_the_last_gives_what_is_needed() {
        let (old, older, new) = (
            resident("old", 10, 5),
            resident("older", 4, 9),
            resident("new", 50, 1),
        );
        let held = |key| {
            assert_eq!(key, old.key, "only the last one is looked at");
            vec![0..2, 4..7, 9..10]
        };
        let residents = vec![new, old, older];
        let steps = plan(&LeastRecentlyUsed, residents.clone(), 7 * PAGE_SIZE - 1, held);
        assert_eq!(steps[0].key, older.key);
        assert_eq!(steps[0].action, Action::Remove);
        assert_eq!(steps[1].key, old.key);
        assert_eq!(steps[1].action, Action::Punch(vec![9..10, 5..7]));
        assert_eq!(steps.len(), 2);
        // More than its pages: the index goes as well.
        let steps = plan(&LeastRecentlyUsed, residents.clone(), 13 * PAGE_SIZE, held);
        assert_eq!(steps[1].action, Action::Remove);
        // Just as much as it takes: nobody asks which pages it has.
        let steps = plan(&LeastRecentlyUsed, residents.clone(), 14 * PAGE_SIZE, |key| {
            unreachable!("{key:?} goes whole")
        });
        assert_eq!(steps.len(), 2);
        let all = plan(&LeastRecentlyUsed, residents, u64::MAX, |_| Vec::new());
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|step| step.action == Action::Remove));
        assert!(plan(&LeastRecentlyUsed, vec![new], 0, |_| Vec::new()).is_empty());
    }
}
