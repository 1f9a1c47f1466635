//! Those who place, read and mend a blob, change what is wanted of it, push, delete and take it apart beside each other, step by step. Each step is one
//! transaction, or one thing done to objects. A client that takes no step any more counts as killed; one that dies while it writes is a step of its own.

use super::Variant;
use super::placer::{begin, place, write};
use super::state::{Blob, Keys, MAIN, Object, PLACES, PUSHED, State, Wish, is_main, key};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Has the copies where they are wanted.
    Place,
    /// From now on others are wanted.
    Rules(Wish),
    /// Finds the blob, then reads it.
    Read,
    /// Reads all copies, and mends the main place's; whether that has room.
    Mend(bool),
    /// A place loses what it has, or damages it.
    Fault(usize, Object),
    /// Takes the blob from its repository.
    Delete,
    /// Pushes the blob.
    Push,
    /// Lets the blob's object go, since there is a recipe.
    Apart,
    /// Makes the blob intact again.
    Intact,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    kind: Kind,
    pub(super) step: u8,
    /// The name of the object that it has seen.
    pub(super) name: Option<u8>,
    /// What was wanted then.
    pub(super) wish: Wish,
    /// Nothing has changed since.
    pub(super) is_fresh: bool,
    /// The replicas that are to stay, or that are right.
    pub(super) kept: Keys,
}

impl Client {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            step: 0,
            name: None,
            wish: Wish([false; PLACES]),
            is_fresh: false,
            kept: Keys::default(),
        }
    }
}

pub(super) const END: u8 = 100;

/// All steps that a client may take next.
pub(super) fn steps(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    for number in 0..state.clients.len() {
        for place in 0..PLACES {
            let key = key(number, place);
            if state.being_written.has(key) {
                let mut reached = state.clone();
                reached.being_written.remove(key);
                reached.late.add(key);
                reached.clients[number].step = END;
                next.push(("a client dies while it writes", reached));
            }
        }
        let mut reached = state.clone();
        if let Some(step) = step(&mut reached, number, number, variant) {
            next.push((step, reached));
        }
    }
}

/// The next step of a client, which writes under the keys of this slot.
pub(super) fn step(state: &mut State, number: usize, slot: usize, variant: Variant) -> Option<&'static str> {
    let mut client = state.clients[number].clone();
    // A change that this step makes is one since it looked.
    state.clients[number].is_fresh = true;
    let step = match client.kind {
        Kind::Place => place(state, &mut client, slot, variant),
        Kind::Rules(wish) => rules(state, &mut client, wish),
        Kind::Read => read(state, &mut client, variant),
        Kind::Mend(has_room) => mend(state, &mut client, slot, has_room, variant),
        Kind::Fault(place, object) => fault(state, &mut client, place, object),
        Kind::Delete => delete(state, &mut client),
        Kind::Push => push(state, &mut client, variant),
        Kind::Apart => apart(state, &mut client, variant),
        Kind::Intact => intact(state, &mut client, slot, variant),
    };
    let is_changed = !state.clients[number].is_fresh;
    client.is_fresh &= !is_changed;
    state.clients[number] = client;
    step
}

fn rules(state: &mut State, client: &mut Client, wish: Wish) -> Option<&'static str> {
    if client.step > 0 {
        return None;
    }
    client.step = END;
    state.wish = wish;
    state.change();
    Some("other copies are wanted")
}

fn fault(state: &mut State, client: &mut Client, place: usize, object: Object) -> Option<&'static str> {
    if client.step > 0 {
        return None;
    }
    client.step = END;
    state.fail(place, object);
    Some("a place loses what it has")
}

fn delete(state: &mut State, client: &mut Client) -> Option<&'static str> {
    let blob = state.blob.as_mut().filter(|blob| blob.is_linked);
    let blob = blob.filter(|_| client.step == 0)?;
    (blob.is_linked, client.step) = (false, END);
    Some("a repository loses the blob")
}

fn apart(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    let name = state.name().filter(|_| client.step == 0)?;
    client.step = END;
    state.blob.iter_mut().for_each(|blob| {
        (blob.name, blob.damaged) = (None, false);
    });
    state.release(name, variant);
    state.change();
    Some("the blob is kept by its recipe alone")
}

fn intact(state: &mut State, client: &mut Client, slot: usize, variant: Variant) -> Option<&'static str> {
    let home = key(slot, MAIN);
    client.step += 1;
    Some(match client.step {
        1 => {
            state.blob.filter(|blob| blob.name.is_none())?;
            begin(state, home, variant);
            "a draft is recorded for an intact blob"
        }
        2 => {
            state.being_written.remove(home);
            state.set(home, Object::Right);
            if variant == Variant::DraftLater {
                state.drafts.add(home);
            }
            "an intact blob is written"
        }
        3 => {
            client.step = END;
            let is_needed =
                state.blob.is_some_and(|blob| blob.name.is_none()) || variant == Variant::IntactUnlooked;
            match (state.drafts.remove(home), is_needed) {
                (false, _) => {}
                (true, false) => state.garbage.add(home),
                (true, true) => {
                    state.blob.iter_mut().for_each(|blob| blob.name = Some(home));
                    state.change();
                }
            }
            "the blob is intact"
        }
        _ => return None,
    })
}

/// Whether a copy is there under this name, as far as sizes say.
fn is_somewhere(state: &State, name: u8) -> bool {
    let is_there = |key: u8| state.object(key) != Object::Absent;
    (is_main(name) && is_there(name)) || state.sound_of(name).into_iter().any(is_there)
}

fn read(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    let shown = state.blob.filter(|blob| blob.is_linked && !blob.damaged);
    client.step += 1;
    Some(match client.step {
        1 => {
            client.name = Some(shown?.name?);
            "a reader finds the blob"
        }
        2 => {
            let name = client.name.filter(|name| is_main(*name));
            if name.is_some_and(|name| state.object(name) != Object::Absent) {
                client.step = END;
            }
            "the reader asks the main place"
        }
        3 => {
            let mut found = state.sound_of(client.name?).into_iter();
            if found.any(|key| state.object(key) != Object::Absent) {
                client.step = END;
            }
            "the reader asks other places"
        }
        4 => {
            let name = shown.and_then(|blob| blob.name);
            let is_elsewhere = name != client.name && variant != Variant::ReadOnce;
            client.step = if name.is_some() && is_elsewhere { 1 } else { END };
            if name.is_some() && !is_elsewhere && !state.had_fault {
                state.complaint = Some("a reader was shown a blob that is gone");
            }
            client.name = name;
            "the reader looks again"
        }
        _ => return None,
    })
}

fn mend(
    state: &mut State,
    client: &mut Client,
    slot: usize,
    has_room: bool,
    variant: Variant,
) -> Option<&'static str> {
    let home = key(slot, MAIN);
    client.step += 1;
    Some(match client.step {
        1 => {
            client.name = Some(state.name()?);
            "a scrub looks at the blob"
        }
        2 => {
            for key in state.replicas_of(client.name?) {
                let is_right = state.object(key) == Object::Right;
                state.note_replica(key, !is_right);
                if is_right {
                    client.kept.add(key);
                }
            }
            "the scrub reads replicas"
        }
        3 => judge_main(state, client, home, has_room, variant)?,
        4 if has_room => {
            if !write(state, client.name?, home, variant) {
                client.step = END;
            }
            "right bytes are written to the main place"
        }
        4 | 5 => {
            let name = client.name?;
            let is_mended = match has_room {
                true => state.bring_home(slot, name, variant),
                false => state.leave_main(slot, name, client.kept, variant).is_some(),
            };
            if is_mended {
                state.blob.iter_mut().for_each(|blob| blob.damaged = false);
            }
            client.step = END;
            "right bytes are recorded in place of the main place's"
        }
        6 => {
            note_damage(state, client.name?, variant);
            client.step = END;
            "the blob is noted as damaged"
        }
        _ => return None,
    })
}

fn judge_main(
    state: &mut State,
    client: &mut Client,
    home: u8,
    has_room: bool,
    variant: Variant,
) -> Option<&'static str> {
    let name = client.name?;
    let is_sound = match is_main(name) {
        true => state.object(name) == Object::Right,
        false => is_somewhere(state, name),
    };
    if is_sound {
        client.step = END;
        let current = state.blob.as_mut().filter(|blob| blob.name == Some(name));
        current.into_iter().for_each(|blob| blob.damaged = false);
    } else if client.kept.is_empty() || !is_main(name) {
        client.step = 5;
    } else if has_room {
        begin(state, home, variant);
    }
    Some("the scrub reads the main place")
}

fn note_damage(state: &mut State, name: u8, variant: Variant) {
    let is_current = state.name() == Some(name) || variant == Variant::DamageStale;
    let has_others = !state.sound_of(name).is_empty() && variant != Variant::DamageUnlooked;
    let current = state.name().filter(|_| is_current && !has_others);
    if let Some(current) = current {
        if state.is_readable(current) {
            state.complaint = Some("a blob is absent whose bytes are there");
        }
        state.blob.iter_mut().for_each(|blob| blob.damaged = true);
    }
}

fn push(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    client.step += 1;
    Some(match client.step {
        1 => {
            state.has_upload = true;
            state.set(PUSHED, Object::Right);
            "an upload is whole"
        }
        2 => {
            let shown = state.blob.filter(|blob| !blob.damaged);
            let name = shown.and_then(|blob| blob.name);
            client.name = name.filter(|name| is_somewhere(state, *name));
            "the blob's record is looked up"
        }
        3 => {
            client.step = END;
            state.has_upload = false;
            record_push(state, client, variant);
            "the blob is recorded and acknowledged"
        }
        _ => return None,
    })
}

/// The transaction by which the pushed object becomes the blob's, or garbage.
fn record_push(state: &mut State, client: &Client, variant: Variant) {
    let new = Blob {
        name: Some(PUSHED),
        is_linked: true,
        damaged: false,
    };
    let Some(old) = state.blob else {
        state.blob = Some(new);
        return state.change();
    };
    let is_sound = match old.name {
        Some(_) => !old.damaged && (client.name == old.name || variant == Variant::PushUnlooked),
        None => true,
    };
    if is_sound {
        if old
            .name
            .is_some_and(|name| client.name.is_none() && !is_somewhere(state, name))
        {
            state.complaint = Some("a blob was pushed and thrown away, and there is no other");
        }
        state.garbage.add(PUSHED);
        state.blob.iter_mut().for_each(|blob| blob.is_linked = true);
        return;
    }
    if let Some(name) = old.name {
        state.release(name, variant);
    }
    state.blob = Some(new);
    state.change();
}
