//! Deduplicators, and those who push, delete and read beside them, step by step. Each step is one transaction, or one thing done to an
//! object. A client that takes no step any more counts as killed; one that dies while it writes is a step of its own.

use super::Variant;
use super::state::{Blob, OLD_PACK, Object, PUSHED, Pack, Recipe, State, pack_key, recipe_key};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Takes this blob apart.
    Dedup(usize),
    /// Makes a pack in place of the old one.
    Replace,
    /// Pushes the first blob.
    Push,
    /// Takes this blob from its repository.
    Delete(usize),
    /// A disk loses the old pack, and somebody notices.
    Fault,
    /// Finds the first blob, then reads it.
    Read,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    kind: Kind,
    step: u8,
    /// The object, or the object of the recipe, that it has seen.
    key: Option<usize>,
    /// The pack that it has seen.
    pack: Option<usize>,
    /// The blobs whose recipes need that pack, as it has seen.
    users: [bool; 2],
}

impl Client {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            step: 0,
            key: None,
            pack: None,
            users: [false; 2],
        }
    }
}

const END: u8 = 100;

/// All steps that a client may take next.
pub(super) fn steps(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    for number in 0..state.clients.len() {
        let client = &state.clients[number];
        for key in [pack_key(number), recipe_key(number)] {
            if state.being_written[key] {
                let mut reached = state.clone();
                reached.being_written[key] = false;
                reached.objects[key] = Object::Part;
                reached.clients[number].step = END;
                next.push(("a deduplicator dies while it writes", reached));
            }
        }
        let mut reached = state.clone();
        let mut client = client.clone();
        let step = match client.kind {
            Kind::Dedup(blob) => dedup(&mut reached, &mut client, number, blob, variant),
            Kind::Replace => replace(&mut reached, &mut client, number, variant),
            Kind::Push => push(&mut reached, &mut client, variant),
            Kind::Delete(blob) => delete(&mut reached, &mut client, blob),
            Kind::Fault => fault(&mut reached, &mut client, variant),
            Kind::Read => read(&mut reached, &mut client, variant),
        };
        if let Some(step) = step {
            reached.clients[number] = client;
            next.push((step, reached));
        }
    }
}

/// Writes an object, in two steps: its draft is recorded, then it is there.
fn write(state: &mut State, key: usize, is_first: bool, variant: Variant) {
    match (is_first, variant == Variant::DraftLater) {
        (true, false) => (state.drafts[key], state.being_written[key]) = (true, true),
        (false, false) => (state.objects[key], state.being_written[key]) = (Object::Whole, false),
        (true, true) => state.objects[key] = Object::Whole,
        (false, true) => state.drafts[key] = true,
    }
}

fn dedup(
    state: &mut State,
    client: &mut Client,
    number: usize,
    blob: usize,
    variant: Variant,
) -> Option<&'static str> {
    client.step += 1;
    Some(match client.step {
        1 => {
            let found = state.blobs[blob].filter(|blob| blob.is_linked && !blob.damaged);
            client.key = found?.object;
            client.key?;
            client.pack = state.chunk.filter(|pack| state.is_sound(*pack));
            if client.pack.is_some() {
                client.step = 3;
            }
            "a blob is taken apart, and its chunk looked up"
        }
        2 | 3 => {
            write(state, pack_key(number), client.step == 2, variant);
            "a pack is written"
        }
        4 | 5 => {
            write(state, recipe_key(number), client.step == 4, variant);
            "a recipe is written"
        }
        6 => {
            // Proven: it is restored from the objects as they are.
            let pack = client.pack.unwrap_or(number);
            if [pack_key(pack), recipe_key(number)].map(|key| state.objects[key]) != [Object::Whole; 2] {
                client.step = END;
            }
            "the recipe is proven"
        }
        7 if variant == Variant::DropFirst => {
            drop_intact(state, blob, variant);
            "the blob's object goes early"
        }
        7 | 8 if client.step == 7 || variant == Variant::DropFirst => {
            if !record(state, client, number, blob, variant) {
                client.step = END;
            }
            "the recipe is recorded"
        }
        8 => {
            drop_intact(state, blob, variant);
            client.step = END;
            "the blob's object goes"
        }
        _ => return None,
    })
}

fn record(state: &mut State, client: &Client, number: usize, blob: usize, variant: Variant) -> bool {
    let is_here = match variant {
        Variant::BlobUnlooked | Variant::DropFirst => true,
        _ => state.blobs[blob].is_some_and(|found| found.object.is_some() && found.object == client.key),
    };
    let has_pack = match (client.pack, variant) {
        (None, _) | (_, Variant::PacksUnlooked) => true,
        (Some(pack), Variant::PacksOfAnyState) => state.packs[pack].is_some(),
        (Some(pack), _) => state.is_sound(pack),
    };
    let own_pack = client.pack.is_none();
    let has_drafts = state.drafts[recipe_key(number)] && (!own_pack || state.drafts[pack_key(number)]);
    if !is_here || !has_pack || (!has_drafts && variant != Variant::DraftsUnlooked) {
        return false;
    }
    state.forget_recipe(blob, variant != Variant::LossUnnoted);
    state.drafts[recipe_key(number)] = false;
    if own_pack {
        state.drafts[pack_key(number)] = false;
        state.packs[number] = Some(Pack::needed());
        // Another sound pack that has the chunk keeps it.
        if !state.chunk.is_some_and(|pack| state.is_sound(pack)) {
            state.chunk = Some(number);
        }
    }
    state.recipes[blob] = Some(Recipe {
        key: recipe_key(number),
        pack: client.pack.unwrap_or(number),
        damaged: false,
    });
    true
}

fn drop_intact(state: &mut State, blob: usize, variant: Variant) {
    let is_sound = state.recipes[blob].is_some_and(|recipe| {
        (!recipe.damaged && state.is_sound(recipe.pack)) || variant == Variant::DropDamaged
    });
    if !is_sound && variant != Variant::DropUnlooked && variant != Variant::DropFirst {
        return;
    }
    let found = state.blobs[blob].as_mut();
    if let Some(key) = found.and_then(|blob| blob.object.take()) {
        state.garbage[key] = true;
        state.blobs[blob].iter_mut().for_each(|blob| blob.damaged = false);
    }
}

fn replace(state: &mut State, client: &mut Client, number: usize, variant: Variant) -> Option<&'static str> {
    client.step += 1;
    Some(match client.step {
        1 => {
            client.users = users(state);
            if client.users == [false; 2] || !state.is_sound(OLD_PACK) {
                return None;
            }
            "a pack is to be replaced"
        }
        2 | 3 => {
            write(state, pack_key(number), client.step == 2, variant);
            "a pack is written in place of another"
        }
        4 => {
            client.step = END;
            let is_as_seen = users(state) == client.users || variant == Variant::UsersUnlooked;
            let is_whole = state.objects[pack_key(number)] == Object::Whole;
            if is_as_seen && is_whole && state.is_sound(OLD_PACK) && state.drafts[pack_key(number)] {
                state.drafts[pack_key(number)] = false;
                state.packs[number] = Some(Pack::needed());
                let seen = client
                    .users
                    .iter()
                    .zip(&mut state.recipes)
                    .filter(|(is_user, _)| **is_user);
                for recipe in seen.filter_map(|(_, recipe)| recipe.as_mut()) {
                    recipe.pack = number;
                }
                if let Some(old) = &mut state.packs[OLD_PACK] {
                    (old.condemned, old.unchecked) = (true, true);
                }
                state.chunk = Some(number);
            }
            "a pack is replaced"
        }
        _ => return None,
    })
}

fn users(state: &State) -> [bool; 2] {
    state
        .recipes
        .map(|recipe| recipe.is_some_and(|recipe| recipe.pack == OLD_PACK))
}

fn push(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    client.step += 1;
    Some(match client.step {
        1 => {
            state.has_upload = true;
            state.objects[PUSHED] = Object::Whole;
            "an upload is whole"
        }
        2 => {
            let is_shown = state.blobs[0].is_some_and(|blob| !blob.damaged);
            client.key = kept(state).filter(|_| is_shown && state.is_whole(0));
            "the blob's record is looked up"
        }
        3 => {
            state.has_upload = false;
            mend(state, client, variant);
            client.step = END;
            let is_here = state.blobs[0].is_some_and(|blob| !blob.damaged);
            if !is_here {
                state.complaint = Some("a blob is absent that was just pushed");
            }
            "the blob is recorded and acknowledged"
        }
        _ => return None,
    })
}

/// The object of the first blob, or of its recipe if that is sound.
fn kept(state: &State) -> Option<usize> {
    let sound = state.recipes[0].filter(|recipe| !recipe.damaged && state.is_sound(recipe.pack));
    state.blobs[0].and_then(|blob| blob.object.or(sound.map(|recipe| recipe.key)))
}

/// The transaction by which the pushed object becomes the blob's, or garbage.
fn mend(state: &mut State, client: &Client, variant: Variant) {
    let Some(old) = state.blobs[0] else {
        state.blobs[0] = Some(Blob {
            object: Some(PUSHED),
            is_linked: true,
            condemned: false,
            damaged: false,
        });
        return;
    };
    let has_recipe = variant == Variant::PushUnlooked && state.recipes[0].is_some();
    let is_sound = !old.damaged && client.key.is_some() && client.key == kept(state);
    let linked = Blob {
        is_linked: true,
        condemned: false,
        ..old
    };
    if is_sound || has_recipe {
        state.garbage[PUSHED] = true;
        state.blobs[0] = Some(linked);
        return;
    }
    old.object.into_iter().for_each(|key| state.garbage[key] = true);
    let is_noted = ![Variant::LossUnnoted, Variant::MendUnnoted].contains(&variant);
    state.forget_recipe(0, is_noted);
    state.blobs[0] = Some(Blob {
        object: Some(PUSHED),
        damaged: false,
        ..linked
    });
}

fn delete(state: &mut State, client: &mut Client, blob: usize) -> Option<&'static str> {
    let found = state.blobs[blob].as_mut().filter(|blob| blob.is_linked);
    let found = found.filter(|_| client.step == 0)?;
    (found.is_linked, client.step) = (false, END);
    Some("a repository loses a blob")
}

fn fault(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    client.step += 1;
    let key = pack_key(OLD_PACK);
    match client.step {
        1 if state.packs[OLD_PACK].is_some() && state.objects[key] == Object::Whole => {
            state.objects[key] = Object::Absent;
            state.lost = Some(key);
            Some("a disk loses a pack")
        }
        2 => {
            state.lost = None;
            state.note_damage(OLD_PACK, variant);
            client.step = END;
            Some("the loss is noted")
        }
        _ => None,
    }
}

fn read(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    client.step += 1;
    match client.step {
        1 => {
            let found = state.blobs[0].filter(|blob| blob.is_linked && !blob.damaged)?;
            client.key = found.object.or(state.recipes[0].map(|recipe| recipe.key));
            let recipe = state.recipes[0].filter(|_| found.object.is_none());
            client.pack = recipe.map(|recipe| recipe.pack);
            Some("a reader finds the blob")
        }
        2 => {
            client.step = END;
            let is_there = |key: usize| state.objects[key] == Object::Whole;
            let pack = client.pack.is_none_or(|pack| is_there(pack_key(pack)));
            let is_found = client.key.is_some_and(is_there) && pack;
            let is_shown = state.blobs[0].is_some_and(|blob| blob.is_linked && !blob.damaged);
            let is_found_now = variant != Variant::ReadOnce && state.is_whole(0);
            if is_shown && !is_found && !is_found_now {
                state.complaint = Some("a reader was shown a blob that is gone");
            }
            Some("the reader opens the objects")
        }
        _ => None,
    }
}
