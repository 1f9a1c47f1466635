//! Collections, step by step, in any order and at any time; killed ones begin again anywhere.

use super::Variant;
use super::state::{Object, PUSHED, State, pack_key};

/// All steps that a collection may take next.
pub(super) fn steps(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    blobs(state, variant, next);
    packs(state, variant, next);
    objects(state, next);
}

/// One step of a collection that nobody kills, if there is anything to do.
pub(super) fn whole(state: &State, variant: Variant) -> Option<State> {
    let mut next = Vec::new();
    steps(state, variant, &mut next);
    next.into_iter().map(|(_, reached)| reached).next()
}

fn blobs(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    for number in 0..2 {
        let Some(blob) = state.blobs[number].filter(|blob| !blob.is_linked) else {
            continue;
        };
        let mut reached = state.clone();
        if !blob.condemned {
            reached.blobs[number]
                .iter_mut()
                .for_each(|blob| blob.condemned = true);
            next.push(("a blob that no repository has is condemned", reached));
            continue;
        }
        reached.blobs[number] = None;
        blob.object
            .into_iter()
            .for_each(|key| reached.garbage[key] = true);
        if variant != Variant::RecipeStays {
            reached.forget_recipe(number, variant != Variant::LossUnnoted);
        }
        next.push(("a condemned blob is claimed", reached));
    }
}

fn packs(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    for number in 0..state.packs.len() {
        let Some(pack) = state.packs[number] else { continue };
        let mut reached = state.clone();
        let change = |reached: &mut State, condemned: bool| {
            if let Some(pack) = &mut reached.packs[number] {
                (pack.condemned, pack.unchecked) = (condemned, condemned);
            }
        };
        let is_removed_early = variant == Variant::RemoveUnlooked && pack.unchecked;
        if pack.condemned || is_removed_early {
            if state.chunk == Some(number) {
                reached.chunk = None;
                next.push(("the chunks of a condemned pack go", reached));
            } else {
                reached.packs[number] = None;
                reached.garbage[pack_key(number)] = true;
                next.push(("a condemned pack is removed", reached));
            }
            continue;
        }
        if state.seen == Some(number) {
            change(&mut reached, true);
            reached.seen = None;
            next.push(("a pack that was seen not to be needed is condemned", reached));
            continue;
        }
        if !pack.unchecked {
            continue;
        }
        match state.is_needed(number) {
            true => {
                change(&mut reached, false);
                next.push(("a pack that is needed is checked", reached));
            }
            false if variant == Variant::CondemnLater => {
                if state.seen.is_none() {
                    reached.seen = Some(number);
                    next.push(("a pack is seen not to be needed", reached));
                }
            }
            false => {
                change(&mut reached, true);
                next.push(("a pack that nothing needs is condemned", reached));
            }
        }
    }
}

fn objects(state: &State, next: &mut Vec<(&'static str, State)>) {
    for key in 0..state.objects.len() {
        let mut reached = state.clone();
        if state.garbage[key] {
            // The other model has this in steps.
            reached.objects[key] = Object::Absent;
            reached.garbage[key] = false;
            next.push(("garbage is deleted", reached));
        } else if state.drafts[key] && !state.being_written[key] {
            reached.drafts[key] = false;
            reached.garbage[key] = true;
            next.push(("a draft is given up", reached));
        } else if key == PUSHED && state.has_upload && state.clients.is_empty() {
            reached.has_upload = false;
            reached.garbage[key] = true;
            next.push(("an upload is given up", reached));
        }
    }
}
