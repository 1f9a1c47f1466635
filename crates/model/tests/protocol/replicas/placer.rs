//! A placer, step by step: `Store::place`, and the notes before and after it.

use super::Variant;
use super::clients::{Client, END};
use super::state::{Keys, MAIN, Object, Replica, State, is_main, key};

/// The steps of each placer.
const HOME: u8 = 1;
const FIRST: u8 = 4;
const SECOND: u8 = 7;
const LEAVE: u8 = 10;
const DROP: u8 = 12;
const PLACED: u8 = 20;

/// Writes an object in two steps: its draft is recorded, then it is there.
pub(super) fn begin(state: &mut State, key: u8, variant: Variant) {
    match variant == Variant::DraftLater {
        false => {
            state.drafts.add(key);
            state.being_written.add(key);
        }
        true => state.set(key, Object::Right),
    }
}

/// Writes from a copy with right bytes. Replicas with others are noted. `false` if there is none: the draft is garbage.
pub(super) fn write(state: &mut State, name: u8, key: u8, variant: Variant) -> bool {
    let main = is_main(name) && state.object(name) == Object::Right;
    let mut is_found = main;
    for replica in state.sound_of(name) {
        match state.object(replica) {
            _ if is_found => {}
            Object::Right => is_found = true,
            Object::Wrong => state.note_replica(replica, true),
            Object::Absent => {}
        }
    }
    state.being_written.remove(key);
    if is_found {
        if variant == Variant::DraftLater {
            state.drafts.add(key);
        }
        state.set(key, Object::Right);
    } else if state.drafts.remove(key) {
        state.garbage.add(key);
    }
    is_found
}

pub(super) fn place(
    state: &mut State,
    client: &mut Client,
    number: usize,
    variant: Variant,
) -> Option<&'static str> {
    if client.step == 0 {
        return look(state, client);
    }
    let name = client.name?;
    // What is there already takes no step.
    loop {
        match client.step {
            HOME if client.wish.has(MAIN) && !(is_main(name) && state.object(name) != Object::Absent) => {
                break;
            }
            HOME => client.step = FIRST,
            FIRST | SECOND => match needs(state, client, name) {
                true => break,
                false => client.step += 3,
            },
            LEAVE if !client.wish.has(MAIN) && is_main(name) => break,
            LEAVE => client.step = DROP,
            DROP if others(state, client.kept, name).is_empty() => client.step = PLACED,
            _ => break,
        }
    }
    Some(match client.step {
        HOME..FIRST => come_home(state, client, number, name, variant),
        FIRST..LEAVE => replicate(state, client, number, name, variant),
        LEAVE..PLACED => settle(state, client, number, name, variant),
        PLACED => {
            client.step = END;
            if client.is_fresh || variant == Variant::PlacedUnlooked {
                state.unplaced = false;
            }
            "the blob is noted to be where it is wanted"
        }
        _ => return None,
    })
}

fn look(state: &mut State, client: &mut Client) -> Option<&'static str> {
    let blob = state.blob.filter(|blob| blob.is_linked && !blob.damaged)?;
    if !state.unplaced {
        return None;
    }
    if blob.name.is_none() {
        state.unplaced = false;
        client.step = END;
        return Some("a placer sees that the blob is not intact");
    }
    (client.name, client.wish, client.is_fresh) = (blob.name, state.wish, true);
    client.kept = Keys::default();
    client.step = HOME;
    Some("a placer looks at the blob")
}

/// The place of a step.
fn place_of(step: u8) -> usize {
    usize::from(step / SECOND) + 1
}

/// Whether a replica is to be made now. One that is there, as far as its size says, is kept; one that is not is noted.
fn needs(state: &mut State, client: &mut Client, name: u8) -> bool {
    let place = place_of(client.step);
    if !client.wish.has(place) {
        return false;
    }
    let found = state
        .sound_of(name)
        .into_iter()
        .find(|key| State::is_at(*key, place));
    match found {
        Some(key) if state.object(key) == Object::Absent => {
            state.note_replica(key, true);
            client.is_fresh = false;
            true
        }
        Some(key) => {
            client.kept.add(key);
            false
        }
        None => true,
    }
}

fn others(state: &State, kept: Keys, name: u8) -> Vec<u8> {
    let mut others = state.replicas_of(name);
    others.retain(|key| !kept.has(*key));
    others
}

fn come_home(
    state: &mut State,
    client: &mut Client,
    number: usize,
    name: u8,
    variant: Variant,
) -> &'static str {
    let home = key(number, MAIN);
    client.step += 1;
    match client.step - 1 {
        HOME => {
            begin(state, home, variant);
            if variant == Variant::DropFirst {
                state
                    .replicas_of(name)
                    .into_iter()
                    .for_each(|key| state.drop_replica(key));
            }
            "a draft is recorded for the main place"
        }
        2 => {
            // From other places only.
            if !write(state, name, home, variant) {
                client.step = END;
            }
            "the object is written to the main place"
        }
        _ => {
            match state.bring_home(number, name, variant) {
                true => client.name = Some(home),
                false => client.step = PLACED,
            }
            client.is_fresh &= variant == Variant::ChangeUnnoted;
            "the object is recorded on the main place"
        }
    }
}

fn replicate(
    state: &mut State,
    client: &mut Client,
    number: usize,
    name: u8,
    variant: Variant,
) -> &'static str {
    let place = place_of(client.step);
    let new = key(number, place);
    client.step += 1;
    match client.step {
        5 | 8 => {
            begin(state, new, variant);
            "a draft is recorded for a replica"
        }
        6 | 9 => {
            if !write(state, name, new, variant) {
                client.step = END;
            }
            "a replica is written"
        }
        _ => {
            match record(state, name, new, place, variant) {
                true => client.kept.add(new),
                false => client.step = PLACED,
            }
            client.is_fresh &= variant == Variant::ChangeUnnoted;
            "a replica is recorded"
        }
    }
}

fn record(state: &mut State, name: u8, new: u8, place: usize, variant: Variant) -> bool {
    let is_current = state.name() == Some(name) || variant == Variant::RecordStale;
    let is_draft = state.drafts.has(new) || variant == Variant::DraftsUnlooked;
    if !is_current || !is_draft {
        if state.drafts.remove(new) {
            state.garbage.add(new);
        }
        return false;
    }
    state.drafts.remove(new);
    for old in state.replicas_of(name) {
        if State::is_at(old, place) {
            state.drop_replica(old);
        }
    }
    state.replicas[usize::from(new)] = Some(Replica {
        of: name,
        damaged: false,
    });
    state.note_change(variant);
    true
}

/// Reads the replicas that are kept once more; whether all are right.
fn prove(state: &mut State, kept: Keys, name: u8) -> bool {
    let mut is_right = true;
    for key in state.sound_of(name) {
        if !kept.has(key) {
            continue;
        }
        match state.object(key) {
            Object::Right => {}
            Object::Wrong => {
                state.note_replica(key, true);
                is_right = false;
            }
            Object::Absent => is_right = false,
        }
    }
    is_right
}

fn settle(state: &mut State, client: &mut Client, number: usize, name: u8, variant: Variant) -> &'static str {
    client.step += 1;
    let is_home = client.wish.has(MAIN);
    match client.step - 1 {
        LEAVE => {
            if variant != Variant::Unproven && !prove(state, client.kept, name) {
                client.step = END;
            }
            "what is to stay is read before the object leaves the main place"
        }
        11 => {
            match state.leave_main(number, name, client.kept, variant) {
                Some(name) => client.name = Some(name),
                None => client.step = PLACED,
            }
            client.is_fresh &= variant == Variant::ChangeUnnoted;
            "the object leaves the main place"
        }
        DROP => {
            let is_right = match is_home {
                true => state.object(name) == Object::Right || variant == Variant::HomeUnproven,
                false => prove(state, client.kept, name) || variant == Variant::Unproven,
            };
            if !is_right {
                client.step = END;
            }
            "what is to stay is read before others go"
        }
        _ => {
            let is_enough = match variant {
                Variant::DropUnlooked => is_home,
                _ => is_home && client.kept.is_empty(),
            };
            if is_enough || state.are_sound(name, client.kept) {
                for key in others(state, client.kept, name) {
                    state.drop_replica(key);
                }
                state.note_change(variant);
                client.is_fresh &= variant == Variant::ChangeUnnoted;
            }
            client.step = PLACED;
            "replicas that nobody wants are garbage"
        }
    }
}
