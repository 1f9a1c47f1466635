//! The deletion protocol of docs/formats/store.md, explored whole: every order of every step of clients and collectors, each of which
//! may also end for ever after any step, with time passing anywhere between.
//!
//! `dedup` is a model of its own for recipes and packs, since the two together would have too many states.
//!
//! Each variant is the protocol with one rule taken away. The explorer has to find what goes wrong then, or it proves nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod clients;
mod collector;
mod dedup;
mod explorer;
mod replicas;
mod state;

use clients::{Client, Kind};
use explorer::{Machine, explore};
use state::{Blob, State};

/// The protocol, or what is left of it without one of its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Protocol,
    /// A blob is claimed, condemned or not, without a look at which repositories have it.
    ClaimUnlooked,
    /// Links go without a grace time.
    UnlinkAtOnce,
    /// A blob is recorded before its object is whole.
    RecordFirst,
    /// An object is called by its digest, so that a new one has the key of the old one.
    KeyIsDigest,
    /// The record of garbage goes before the object.
    ForgetFirst,
    /// The record of garbage goes as soon as its object was deleted once.
    ForgetAtOnce,
    /// A node that goes on with an upload of another one writes where that one did.
    SameKey,
    /// An upload is continued without a note of it.
    Untouched,
    /// Of two objects with the same bytes the second is forgotten.
    ForgetDuplicate,
    /// A client is told that a blob is here, and nothing is noted.
    NoPromise,
    /// A manifest goes, and no collection is told to look at the links that it needed.
    DeletionUnnoted,
    /// A repository loses a blob, and no collection is told to look at that.
    LossUnnoted,
    /// A collection notes that a link is needed after the transaction in which it saw that.
    KeepLater,
    /// It notes so that a repository has the blob.
    KeepBlobLater,
    /// No collection is told to look at a new link.
    LinkUnnoted,
}

impl Machine for State {
    type Variant = Variant;

    fn steps(&self, variant: Variant) -> Vec<(&'static str, Self)> {
        let mut next = Vec::new();
        clients::steps(self, variant, &mut next);
        collector::steps(self, variant, &mut next);
        next.extend(self.later().map(|later| ("time passes", later)));
        next
    }

    fn wrong(&self) -> Option<&'static str> {
        self.fault()
    }

    fn end_all(&mut self) {
        self.end();
    }

    fn left_over(self, variant: Variant) -> Option<&'static str> {
        left_over(self, variant)
    }
}

/// All clients have ended, for ever: whether collections leave something behind, or take too much.
fn left_over(mut state: State, variant: Variant) -> Option<&'static str> {
    // A collection may be as early as that.
    while let Some(next) = collector::whole(&state, variant) {
        state = next;
    }
    state.arrive();
    // Unlinked after one grace time, condemned after another, claimed after a third.
    for _ in 0..4 {
        for _ in 0..=state::OLD {
            state = state.later().unwrap_or(state);
        }
        while let Some(next) = collector::whole(&state, variant) {
            state = next;
        }
    }
    let blob = usize::from(state.blob.is_some());
    let objects = state
        .objects
        .iter()
        .filter(|object| **object != state::Object::Absent)
        .count();
    let is_needed = state
        .manifests
        .iter()
        .zip(&state.links)
        .any(|(has, link)| *has && link.is_some());
    if objects != blob {
        return Some("an object stays without a record, or a record without its object");
    }
    match (is_needed, blob) {
        (true, 0) => Some("a blob that a manifest names was collected"),
        (false, 1) => Some("a blob that nobody needs stays"),
        _ => None,
    }
}

/// Where it may begin: nothing is here; the blob is here and a manifest names it, which a collection has seen, or which none has looked
/// at; it is here, and nothing names it any more; it is condemned.
fn starts() -> Vec<State> {
    let empty = State::default();
    let mut kept = empty.with_blob(Blob::old(false));
    kept.links[0] = Some(state::OLD);
    kept.manifests[0] = true;
    let mut unchecked = kept.clone();
    unchecked.unchecked[0] = true;
    kept.blob.iter_mut().for_each(|blob| blob.unchecked = false);
    let mut loose = empty.with_blob(Blob::old(false));
    loose.links[0] = Some(state::OLD);
    loose.unchecked[0] = true;
    vec![
        empty.clone(),
        kept,
        unchecked,
        loose,
        empty.with_blob(Blob::old(false)),
        empty.with_blob(Blob::old(true)),
    ]
}

/// Clients that work beside each other and the collectors.
fn casts() -> Vec<Vec<Kind>> {
    use Kind::{Cancel, DeleteBlob, DeleteManifest, GoOn, Look, Mount, Push, Read};
    vec![
        vec![Push(0), Push(1)],
        vec![Push(0), Push(0)],
        vec![Push(0), DeleteManifest],
        vec![Push(0), DeleteBlob],
        vec![Push(0), Cancel],
        vec![Push(0), GoOn],
        vec![Push(0), Look],
        vec![Push(1), Mount],
        vec![Look, DeleteManifest],
        vec![Look, DeleteBlob],
        vec![Look, Mount],
        vec![Mount, DeleteManifest, DeleteBlob],
        vec![Read, DeleteManifest, Push(1)],
    ]
}

/// Explores what these clients may do, from each beginning; how many states there are.
fn explore_cast(cast: &[Kind], variant: Variant) -> Result<usize, String> {
    let explored = starts().into_iter().map(|start| {
        let start = State {
            clients: cast.iter().map(|kind| Client::new(*kind)).collect(),
            // Nobody else removes what a client has just sent.
            has_late_writes: [Kind::Cancel, Kind::GoOn].iter().any(|kind| cast.contains(kind)),
            ..start
        };
        explore(start, variant)
    });
    explored.sum()
}

#[test]
fn in_no_order_of_steps_is_anything_lost_or_left() {
    let explored = casts()
        .into_iter()
        .map(|cast| explore_cast(&cast, Variant::Protocol));
    let states: usize = explored.sum::<Result<usize, String>>().unwrap();
    assert!(states > 100_000, "only {states} states: the model does nothing");
}

/// Each with clients that find it out soon.
#[test]
fn each_rule_of_the_protocol_is_needed() {
    use Kind::{Cancel, DeleteBlob, DeleteManifest, GoOn, Look, Mount, Push};
    let variants = [
        (Variant::ClaimUnlooked, [Look, Mount]),
        (Variant::UnlinkAtOnce, [Push(0), DeleteManifest]),
        (Variant::RecordFirst, [Push(0), DeleteManifest]),
        (Variant::KeyIsDigest, [Push(0), Push(0)]),
        (Variant::ForgetFirst, [Push(0), Cancel]),
        (Variant::ForgetAtOnce, [Push(0), Cancel]),
        (Variant::SameKey, [Push(0), GoOn]),
        (Variant::Untouched, [Push(0), Cancel]),
        (Variant::ForgetDuplicate, [Push(0), DeleteManifest]),
        (Variant::NoPromise, [Look, DeleteManifest]),
        (Variant::DeletionUnnoted, [Look, DeleteManifest]),
        (Variant::LossUnnoted, [Push(0), DeleteManifest]),
        (Variant::KeepLater, [Look, DeleteManifest]),
        (Variant::KeepBlobLater, [Look, DeleteBlob]),
        (Variant::LinkUnnoted, [Push(0), DeleteManifest]),
    ];
    for (variant, cast) in variants {
        assert!(casts().contains(&cast.to_vec()), "{cast:?} is not explored");
        assert!(
            explore_cast(&cast, variant).is_err(),
            "without that rule nothing goes wrong: {variant:?}"
        );
    }
}
