//! Collections, step by step, in any order and at any time; killed ones begin again anywhere. What is late is stored at some time.

use super::Variant;
use super::state::{Object, PUSHED, State, keys};

pub(super) fn steps(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    if let Some(blob) = state.blob.filter(|blob| !blob.is_linked) {
        let mut reached = state.clone();
        reached.blob = None;
        blob.name
            .into_iter()
            .for_each(|name| reached.release(name, variant));
        reached.change();
        next.push(("a blob that no repository has is claimed", reached));
    }
    for key in keys() {
        let mut reached = state.clone();
        if state.late.has(key) {
            let mut stored = state.clone();
            stored.late.remove(key);
            stored.set(key, Object::Right);
            next.push(("an object is stored late", stored));
        }
        if state.garbage.has(key) {
            reached.set(key, Object::Absent);
            if !state.late.has(key) || variant == Variant::SweptOnce {
                reached.garbage.remove(key);
            }
            next.push(("garbage is deleted", reached));
        } else if state.drafts.has(key) && !state.being_written.has(key) {
            reached.drafts.remove(key);
            reached.garbage.add(key);
            next.push(("a draft is given up", reached));
        } else if key == PUSHED && state.has_upload && state.clients.is_empty() {
            reached.has_upload = false;
            reached.garbage.add(key);
            next.push(("an upload is given up", reached));
        }
    }
}

/// All that collections do when nobody else does anything.
pub(super) fn collect(state: &mut State, variant: Variant) {
    loop {
        let mut next = Vec::new();
        steps(state, variant, &mut next);
        match next.into_iter().find(|(_, reached)| reached != state) {
            Some((_, reached)) => *state = reached,
            None => return,
        }
    }
}
