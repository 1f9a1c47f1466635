//! Clients of the registry, step by step. Each step is one transaction, or one thing done to an object.

use super::Variant;
use super::state::{Blob, GRACE, OLD, Object, PATIENCE, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Pushes the blob to a repository, then a manifest that names it.
    Push(usize),
    /// Goes on with the upload of the first client by another node, while that client may do anything, and pushes as it.
    GoOn,
    /// Asks the first repository whether it has the blob, then pushes a manifest that names it.
    Look,
    /// Mounts the blob from the first repository in the second, then pushes a manifest that names it.
    Mount,
    /// Deletes the manifest of the first repository.
    DeleteManifest,
    /// Deletes the blob of the first repository.
    DeleteBlob,
    /// Cancels the upload of the first client while that is between two requests.
    Cancel,
    /// Finds the blob in the first repository, then reads it.
    Read,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    kind: Kind,
    step: u8,
    /// How long ago the last step that promises something was; after `PATIENCE` the client counts as gone.
    pub(super) age: u8,
    /// A key that it has seen.
    key: Option<usize>,
}

impl Client {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            step: 0,
            age: OLD,
            key: None,
        }
    }
}

const END: u8 = 100;

/// All steps that a client may take next.
pub(super) fn steps(state: &State, variant: Variant, next: &mut Vec<(&'static str, State)>) {
    if state.late.is_some() {
        let mut reached = state.clone();
        reached.arrive();
        next.push(("what a dead client has sent is stored", reached));
    }
    for number in 0..state.clients.len() {
        let client = &state.clients[number];
        let is_sending = matches!(client.kind, Kind::Push(_)) && client.step == 2 && client.age <= PATIENCE;
        if is_sending && state.has_late_writes && state.late.is_none() && variant != Variant::KeyIsDigest {
            let mut reached = state.clone();
            reached.late = Some((number, 0));
            reached.clients[number].step = END;
            next.push(("a client dies while it sends the object", reached));
        }
        let mut reached = state.clone();
        let mut client = reached.clients[number].clone();
        let step = match client.kind {
            Kind::Push(repository) => push(&mut reached, &mut client, number, repository, variant),
            Kind::GoOn => go_on(&mut reached, &mut client, number, variant),
            Kind::Look => look(&mut reached, &mut client, variant),
            Kind::Mount => mount(&mut reached, &mut client, variant),
            Kind::DeleteManifest => delete_manifest(&mut reached, &mut client, variant),
            Kind::DeleteBlob => delete_blob(&mut reached, &mut client, variant),
            Kind::Cancel => cancel(&mut reached, &mut client),
            Kind::Read => read(&mut reached, &mut client),
        };
        if let Some(step) = step {
            reached.clients[number] = client;
            next.push((step, reached));
        }
    }
}

fn push(
    state: &mut State,
    client: &mut Client,
    number: usize,
    repository: usize,
    variant: Variant,
) -> Option<&'static str> {
    let key = if variant == Variant::KeyIsDigest {
        super::state::FIRST_KEY
    } else {
        number
    };
    client.step += 1;
    match client.step {
        1 => {
            state.uploads[key] = Some(0);
            Some("an upload begins")
        }
        2 => {
            let touched = state.uploads[key];
            if variant != Variant::Untouched {
                if touched.is_none() {
                    client.step = END;
                }
                state.uploads[key] = touched.map(|_| 0);
            }
            client.age = 0;
            Some("a request continues the upload")
        }
        3 if client.age <= PATIENCE => {
            if state.objects[key] == Object::Absent {
                state.objects[key] = Object::Part;
            }
            Some("the object is begun")
        }
        4 if client.age <= PATIENCE => {
            // The file may have been unlinked meanwhile: what is written to it then is nowhere.
            let is_early = variant == Variant::RecordFirst;
            if state.objects[key] == Object::Part && !is_early {
                state.objects[key] = Object::Whole;
            }
            client.key = state.blob.map(|blob| blob.key);
            Some("the object is whole, and the blob's record looked up")
        }
        5 if client.age <= PATIENCE => {
            record(state, client, key, repository, variant);
            Some("the blob is recorded and acknowledged")
        }
        6 => {
            put_manifest(state, client, repository, variant);
            client.step = END;
            Some("its manifest is pushed")
        }
        _ => None,
    }
}

/// Another node takes a key that nobody has written to; what stands under the old one is garbage.
fn go_on(state: &mut State, client: &mut Client, number: usize, variant: Variant) -> Option<&'static str> {
    let key = if variant == Variant::SameKey { 0 } else { number };
    if client.step > 0 {
        return push(state, client, key, 0, variant);
    }
    state.uploads[0].take()?;
    if key != 0 {
        state.throw_away(0);
    }
    state.uploads[key] = Some(0);
    (client.step, client.age) = (2, 0);
    Some("another node goes on with the upload")
}

fn record(state: &mut State, client: &mut Client, key: usize, repository: usize, variant: Variant) {
    if state.uploads[key].take().is_none() {
        client.step = END;
        return;
    }
    match state.blob {
        None => {
            state.blob = Some(Blob {
                key,
                condemned: false,
                unchecked: true,
                age: 0,
            });
        }
        Some(old) if client.key == Some(old.key) => {
            if old.key != key && variant != Variant::ForgetDuplicate {
                state.throw_away(key);
            }
        }
        Some(old) => {
            if old.key != key {
                state.throw_away(old.key);
            }
            state.blob = Some(Blob { key, ..old });
        }
    }
    state.link(repository, variant);
    client.age = 0;
}

/// The transaction of a manifest. It is an error that it is refused while the promise holds.
fn put_manifest(state: &mut State, client: &mut Client, repository: usize, variant: Variant) {
    if state.links[repository].is_some() {
        state.manifests[repository] = true;
        state.link(repository, variant);
        state.unchecked[repository] = false;
    } else if client.age <= PATIENCE && !state.taken[repository] {
        state.complaint = Some("a manifest was refused although its blob was promised");
    }
}

fn look(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    client.step += 1;
    match client.step {
        1 => {
            client.age = 0;
            match state.links[0] {
                None => client.step = END,
                // Young enough: nothing is written.
                Some(age) if age < GRACE / 2 || variant == Variant::NoPromise => client.step = 2,
                Some(_) => {}
            }
            Some("a client looks for the blob")
        }
        2 => {
            match state.links[0] {
                Some(_) => state.link(0, variant),
                None => client.step = END,
            }
            client.age = 0;
            Some("the blob is promised")
        }
        3 => {
            put_manifest(state, client, 0, variant);
            client.step = END;
            Some("a manifest with the blob that was found is pushed")
        }
        _ => None,
    }
}

fn mount(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    client.step += 1;
    match client.step {
        1 => {
            match state.links {
                [None, None] => client.step = END,
                _ => state.link(1, variant),
            }
            client.age = 0;
            Some("the blob is mounted")
        }
        2 => {
            put_manifest(state, client, 1, variant);
            client.step = END;
            Some("a manifest with the blob that was mounted is pushed")
        }
        _ => None,
    }
}

fn delete_manifest(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    (client.step == 0 && state.manifests[0]).then(|| {
        client.step = END;
        state.manifests[0] = false;
        state.unchecked[0] |= state.links[0].is_some() && variant != Variant::DeletionUnnoted;
        "the manifest is deleted"
    })
}

fn delete_blob(state: &mut State, client: &mut Client, variant: Variant) -> Option<&'static str> {
    (client.step == 0 && state.links[0].is_some()).then(|| {
        client.step = END;
        state.unlink(0, variant);
        state.taken[0] = true;
        "the blob is taken from its repository"
    })
}

fn cancel(state: &mut State, client: &mut Client) -> Option<&'static str> {
    // No request holds the upload: its client has begun it, and does nothing yet.
    let is_free = [1, END].contains(&state.clients[0].step);
    (client.step == 0 && is_free && state.uploads[0].is_some()).then(|| {
        client.step = END;
        state.uploads[0] = None;
        state.throw_away(0);
        "the upload is cancelled"
    })
}

fn read(state: &mut State, client: &mut Client) -> Option<&'static str> {
    client.step += 1;
    match client.step {
        1 => {
            client.key = state.links[0].and(state.blob).map(|blob| blob.key);
            client.age = 0;
            if client.key.is_none() {
                client.step = END;
            }
            Some("a reader finds the blob")
        }
        2 if client.age <= PATIENCE => {
            client.step = END;
            let is_there = |key: usize| state.objects[key] == Object::Whole;
            let current = state.blob.map(|blob| blob.key);
            if !client.key.is_some_and(is_there) && !current.is_some_and(is_there) {
                state.complaint = Some("a reader was shown a blob that is gone");
            }
            Some("the reader opens the object")
        }
        _ => None,
    }
}
