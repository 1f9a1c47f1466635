//! Collections, step by step, in any order; killed ones begin again anywhere.

use super::Variant;
use super::state::{GRACE, KEYS, Object, State, TIMEOUT};

/// All steps that a collection may take next.
pub(super) fn steps(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    records(state, variant, next);
    objects(state, variant, next);
    if state.sweeping.is_some() {
        let mut reached = state.clone();
        reached.sweeping = None;
        next.push(("the collection is killed", reached));
    }
}

/// One step of a collection that nobody kills, if there is anything to do.
pub(super) fn whole(state: &State, variant: Variant) -> Option<State> {
    let mut next = Vec::new();
    records(state, variant, &mut next);
    objects(state, variant, &mut next);
    next.into_iter().map(|(_, reached)| reached).next()
}

fn records(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    let mut push = |step, change: &dyn Fn(&mut State)| {
        let mut reached = state.clone();
        change(&mut reached);
        next.push((step, reached));
    };
    let grace = if variant == Variant::UnlinkAtOnce {
        0
    } else {
        GRACE
    };
    for repository in 0..2 {
        let is_old = state.links[repository].is_some_and(|age| age > grace || grace == 0);
        if is_old && !state.manifests[repository] {
            push("a link that no manifest needs goes", &|reached| {
                reached.links[repository] = None;
                if let Some(blob) = reached.blob.as_mut().filter(|blob| !blob.condemned) {
                    blob.age = 0;
                }
            });
        }
    }
    for key in 0..KEYS {
        if state.uploads[key].is_some_and(|age| age > TIMEOUT) {
            push("an abandoned upload goes", &|reached| {
                reached.uploads[key] = None;
                reached.garbage[key] = true;
            });
        }
    }
    let Some(blob) = state.blob.filter(|blob| blob.age > GRACE) else {
        return;
    };
    let is_unlinked = state.links == [None, None];
    if is_unlinked && !blob.condemned {
        push("the blob is condemned", &|reached| {
            if let Some(blob) = &mut reached.blob {
                blob.condemned = true;
                blob.age = 0;
            }
        });
    }
    // A link revives a condemned blob, so the look is enough; without it the age alone decides.
    if blob.condemned && is_unlinked || variant == Variant::ClaimUnlooked {
        push("the blob is claimed", &|reached| {
            reached.blob = None;
            reached.garbage[blob.key] = true;
        });
    }
}

fn objects(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    let Some((key, is_first_done)) = state.sweeping else {
        for key in (0..KEYS).filter(|key| state.garbage[*key]) {
            let mut reached = state.clone();
            reached.sweeping = Some((key, false));
            next.push(("garbage is found", reached));
        }
        return;
    };
    let mut reached = state.clone();
    let deletes = is_first_done == (variant == Variant::ForgetFirst);
    match deletes {
        true => reached.objects[key] = Object::Absent,
        false => reached.garbage[key] = false,
    }
    reached.sweeping = (!is_first_done).then_some((key, true));
    next.push((
        if deletes {
            "the object is deleted"
        } else {
            "the garbage is forgotten"
        },
        reached,
    ));
}
