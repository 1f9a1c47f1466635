//! Collections, step by step, in any order; killed ones begin again anywhere.

use super::Variant;
use super::state::{GRACE, KEYS, Object, State, Sweep, TIMEOUT};

/// All steps that a collection may take next.
pub(super) fn steps(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    records(state, variant, next);
    objects(state, variant, next);
    if state.sweeping.is_some() || state.seen.is_some() || state.is_blob_seen {
        let mut reached = state.clone();
        (reached.sweeping, reached.seen, reached.is_blob_seen) = (None, None, false);
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
        match (is_old && state.unchecked[repository], state.manifests[repository]) {
            (true, false) => push("a link that no manifest needs goes", &|reached| {
                reached.unlink(repository, variant);
            }),
            (true, true) if variant == Variant::KeepLater => {
                if state.seen.is_none() {
                    push("a link is seen to be needed", &|reached| {
                        reached.seen = Some(repository)
                    });
                }
            }
            (true, true) => push("a link that is needed is checked", &|reached| {
                reached.unchecked[repository] = false;
            }),
            (false, _) => {}
        }
    }
    if state.is_blob_seen {
        push("the blob that was seen to be needed is checked", &|reached| {
            reached.check_blob()
        });
    }
    if let Some(repository) = state.seen {
        push("the link that was seen to be needed is checked", &|reached| {
            reached.unchecked[repository] = false;
            reached.seen = None;
        });
    }
    for key in 0..KEYS {
        if state.uploads[key].is_some_and(|age| age > TIMEOUT) {
            push("an abandoned upload goes", &|reached| {
                reached.uploads[key] = None;
                reached.throw_away(key);
            });
        }
    }
    let Some(blob) = state.blob.filter(|blob| blob.age > GRACE && blob.unchecked) else {
        return;
    };
    let is_unlinked = state.links == [None, None];
    if !is_unlinked && !blob.condemned && !state.is_blob_seen {
        push("a blob that a repository has is checked", &|reached| {
            reached.is_blob_seen = true;
            if variant != Variant::KeepBlobLater {
                reached.check_blob();
            }
        });
    }
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
            reached.throw_away(blob.key);
        });
    }
}

fn objects(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    let Some(sweep) = state.sweeping else {
        for key in 0..KEYS {
            let Some(age) = state.garbage[key] else { continue };
            let is_last = age > GRACE || variant == Variant::ForgetAtOnce;
            // To delete once more what is not there changes nothing.
            if is_last || state.objects[key] != Object::Absent {
                let mut reached = state.clone();
                reached.sweeping = Some(Sweep {
                    key,
                    is_last,
                    is_half_done: false,
                });
                next.push(("garbage is found", reached));
            }
        }
        return;
    };
    let mut reached = state.clone();
    let deletes = !sweep.is_last || sweep.is_half_done == (variant == Variant::ForgetFirst);
    match deletes {
        true => reached.objects[sweep.key] = Object::Absent,
        false => reached.garbage[sweep.key] = None,
    }
    reached.sweeping = (sweep.is_last && !sweep.is_half_done).then_some(Sweep {
        is_half_done: true,
        ..sweep
    });
    next.push((
        if deletes {
            "the object is deleted"
        } else {
            "the garbage is forgotten"
        },
        reached,
    ));
}
