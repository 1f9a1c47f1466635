//! The protocol of recipes and packs of docs/formats/store.md, explored whole. Two blobs have a chunk in common. Time plays no part: each
//! step of a collection may come at any time, which is more than may happen. One thing is assumed: no draft is given up while its writer,
//! who has just recorded it, writes its object.

mod clients;
mod collector;
mod state;

use clients::{Client, Kind};
use state::State;

use super::explorer::{Machine, explore};

/// The protocol, or what is left of it without one of its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Protocol,
    /// A recipe is recorded without a look at whether the packs of others that it needs are still here.
    PacksUnlooked,
    /// It is recorded if they are here, condemned or damaged though they may be.
    PacksOfAnyState,
    /// A recipe is recorded although its drafts may have been given up.
    DraftsUnlooked,
    /// A recipe is recorded for a blob that may be gone, or another one by now.
    BlobUnlooked,
    /// An object is written before its draft is recorded.
    DraftLater,
    /// A blob's object goes since its recipe was recorded, and nobody looks at whether the recipe is still here.
    DropUnlooked,
    /// A blob's object goes although its recipe is damaged.
    DropDamaged,
    /// A blob's object goes before its recipe is recorded.
    DropFirst,
    /// A recipe goes, and no collection is told to look at the packs that it needed.
    LossUnnoted,
    /// A blob goes, and its recipe stays.
    RecipeStays,
    /// A collection condemns a pack after the transaction in which it saw that nothing needs it.
    CondemnLater,
    /// A collection removes a pack that was not condemned before, without a look at whether something needs it.
    RemoveUnlooked,
    /// A damaged pack is marked, and the blobs that need it are not.
    DamageUnspread,
    /// Of a blob that is pushed again the new object is thrown away, since there is a recipe, sound or not.
    PushUnlooked,
    /// A blob that is pushed again gets the new object, and keeps the record of its damaged recipe's packs as checked.
    MendUnnoted,
    /// Packs are replaced without a look at which recipes need them by now.
    UsersUnlooked,
    /// A reader does not look again when something is not where it was.
    ReadOnce,
}

impl Machine for State {
    type Variant = Variant;

    fn steps(&self, variant: Variant) -> Vec<(&'static str, Self)> {
        let mut next = Vec::new();
        clients::steps(self, variant, &mut next);
        collector::steps(self, variant, &mut next);
        next
    }

    fn wrong(&self) -> Option<&'static str> {
        self.fault()
    }

    fn end_all(&mut self) {
        self.clients.clear();
        self.seen = None;
        self.being_written
            .iter_mut()
            .for_each(|is_written| *is_written = false);
    }

    fn left_over(mut self, variant: Variant) -> Option<&'static str> {
        while let Some(next) = collector::whole(&self, variant) {
            self = next;
        }
        self.left()
    }
}

/// Where it may begin: both blobs are intact; the first is kept as a recipe; nothing needs the pack with the chunk; the first is intact and
/// has a recipe, too.
fn starts() -> Vec<State> {
    let intact = State::intact();
    let mut both = intact.clone();
    both.add_old_recipe();
    let mut recipe = both.clone();
    recipe.blobs[0].iter_mut().for_each(|blob| blob.object = None);
    recipe.objects[0] = state::Object::Absent;
    let mut loose = intact.clone();
    loose.add_old_recipe();
    loose.recipes[0] = None;
    loose.objects[state::OLD_RECIPE] = state::Object::Absent;
    loose.packs[state::OLD_PACK]
        .iter_mut()
        .for_each(|pack| pack.unchecked = true);
    vec![intact, recipe, loose, both]
}

/// Clients that work beside each other and the collectors.
fn casts() -> Vec<Vec<Kind>> {
    use Kind::{Dedup, Delete, Fault, Push, Read, Replace};
    vec![
        vec![Dedup(0), Dedup(1), Delete(0)],
        vec![Dedup(0), Dedup(0), Push],
        vec![Dedup(1), Delete(0), Push],
        vec![Dedup(0), Delete(0), Push],
        vec![Dedup(0), Push, Read],
        vec![Dedup(1), Fault, Push],
        vec![Dedup(0), Fault, Push],
        vec![Replace, Dedup(1), Delete(0)],
        vec![Replace, Push, Read],
        vec![Replace, Fault, Push],
    ]
}

fn explore_cast(cast: &[Kind], variant: Variant) -> Result<usize, String> {
    let explored = starts().into_iter().map(|start| {
        let clients = cast.iter().map(|kind| Client::new(*kind)).collect();
        explore(State { clients, ..start }, variant)
    });
    explored.sum()
}

#[test]
fn in_no_order_of_steps_does_deduplication_lose_or_leave_anything() {
    let explored = casts()
        .into_iter()
        .map(|cast| explore_cast(&cast, Variant::Protocol));
    let states: usize = explored.sum::<Result<usize, String>>().unwrap();
    assert!(states > 50_000, "only {states} states: the model does nothing");
}

/// Each with clients that find it out soon.
#[test]
fn each_rule_of_deduplication_is_needed() {
    use Kind::{Dedup, Delete, Fault, Push, Read, Replace};
    let variants = [
        (Variant::PacksUnlooked, [Dedup(1), Delete(0), Push]),
        (Variant::PacksOfAnyState, [Dedup(1), Delete(0), Push]),
        (Variant::PacksOfAnyState, [Dedup(1), Fault, Push]),
        (Variant::DraftsUnlooked, [Dedup(0), Delete(0), Push]),
        (Variant::BlobUnlooked, [Dedup(0), Delete(0), Push]),
        (Variant::DraftLater, [Dedup(0), Delete(0), Push]),
        (Variant::DropUnlooked, [Dedup(0), Delete(0), Push]),
        (Variant::DropDamaged, [Dedup(0), Fault, Push]),
        (Variant::DropFirst, [Dedup(0), Delete(0), Push]),
        (Variant::LossUnnoted, [Dedup(1), Delete(0), Push]),
        (Variant::RecipeStays, [Dedup(1), Delete(0), Push]),
        (Variant::CondemnLater, [Dedup(1), Delete(0), Push]),
        (Variant::RemoveUnlooked, [Dedup(1), Delete(0), Push]),
        (Variant::DamageUnspread, [Dedup(1), Fault, Push]),
        (Variant::PushUnlooked, [Dedup(1), Fault, Push]),
        (Variant::MendUnnoted, [Dedup(1), Fault, Push]),
        (Variant::UsersUnlooked, [Replace, Dedup(1), Delete(0)]),
        (Variant::ReadOnce, [Dedup(0), Push, Read]),
        (Variant::ReadOnce, [Replace, Push, Read]),
    ];
    for (variant, cast) in variants {
        assert!(casts().contains(&cast.to_vec()), "{cast:?} is not explored");
        assert!(
            explore_cast(&cast, variant).is_err(),
            "without that rule nothing goes wrong: {variant:?}"
        );
    }
}
