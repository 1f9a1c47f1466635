//! The protocol of copies on several places of docs/formats/store.md, explored whole: one blob, the main place and two others. Time plays no part: each step
//! of a collection may come at any time. Two things are assumed: no draft is given up while its writer, who has just recorded it, writes its object; and
//! garbage is deleted once more after the last time at which a server may store what a dead writer has sent.

mod clients;
mod collector;
mod placer;
mod state;

use clients::{Client, Kind};
use state::{MAIN, Object, PLACES, State, Wish};

use super::explorer::{Machine, explore};

/// The protocol, or what is left of it without one of its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Protocol,
    /// An object leaves the main place without a look at whether the replicas that are to stay are still here and sound.
    LeaveUnlooked,
    /// An object that leaves the main place keeps its name.
    NameKept,
    /// An object gets another name, and its replicas do not.
    RenamedAlone,
    /// A replica is recorded for an object that may be gone, or have another name by now.
    RecordStale,
    /// An object comes home that may be gone, or have another name by now.
    HomeStale,
    /// Drafts count although they may have been given up.
    DraftsUnlooked,
    /// An object is written before its draft is recorded.
    DraftLater,
    /// What is to stay is not read before the object leaves the main place.
    Unproven,
    /// The main place's object is not read before replicas go.
    HomeUnproven,
    /// Replicas go since the object is on the main place, and nobody looks at those that are to stay.
    DropUnlooked,
    /// Replicas that nobody wants go before others are there.
    DropFirst,
    /// An object goes, and its replicas stay.
    ReplicasStay,
    /// What a placer changes is not noted as a change: another one, who looked before, takes all for done.
    ChangeUnnoted,
    /// A placer notes that all is where it is wanted, though something may have changed since it looked.
    PlacedUnlooked,
    /// A blob is noted as damaged that may have another name by now.
    DamageStale,
    /// A blob is noted as damaged though it may have got a sound replica since.
    DamageUnlooked,
    /// A blob is made intact that may be so by now, or gone.
    IntactUnlooked,
    /// Of a blob that is pushed again the new object is thrown away, whatever there is of the old one.
    PushUnlooked,
    /// Garbage is deleted once, though a server may store it later.
    SweptOnce,
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
        for key in self.being_written.all() {
            self.late.add(key);
        }
        self.being_written = state::Keys::default();
    }

    fn left_over(mut self, variant: Variant) -> Option<&'static str> {
        // A scrub, then placers until nothing is to be looked at.
        self.run(Kind::Mend(true), variant);
        for _ in 0..6 {
            if !self.unplaced || self.name().is_none() {
                break;
            }
            self.run(Kind::Place, variant);
        }
        let is_looked_at =
            self.blob.is_none_or(|blob| blob.damaged) || !self.unplaced || self.name().is_none();
        if !is_looked_at {
            return Some("placers come to no end");
        }
        self.left()
    }
}

impl State {
    /// One client does all that it does, and collections all that they do before and after it.
    fn run(&mut self, kind: Kind, variant: Variant) {
        collector::collect(self, variant);
        let is_free = |slot: &usize| (0..PLACES).all(|place| self.is_unused(state::key(*slot, place), *slot));
        let Some(slot) = (0..4).find(is_free) else {
            self.complaint = Some("more objects stay than are wanted");
            return;
        };
        self.clients.push(Client::new(kind));
        while clients::step(self, 0, slot, variant).is_some() {}
        self.clients.clear();
        self.being_written = state::Keys::default();
        collector::collect(self, variant);
    }

    fn is_unused(&self, key: u8, slot: usize) -> bool {
        let is_record = self.replica(key).is_some() || self.name() == Some(key);
        self.object(key) == Object::Absent && !is_record && self.name() != Some(state::away(slot))
    }
}

fn wish(places: &[usize]) -> Wish {
    let mut wish = Wish([false; PLACES]);
    places.iter().for_each(|place| wish.0[*place] = true);
    wish
}

/// Where it may begin: a copy is to be made; the blob is to leave the main place; it is to come back; all is as it should be.
fn starts() -> Vec<State> {
    vec![
        State::at(wish(&[MAIN]), wish(&[MAIN, 1])),
        State::at(wish(&[MAIN, 1]), wish(&[1, 2])),
        State::at(wish(&[1, 2]), wish(&[MAIN])),
        State::at(wish(&[MAIN, 1]), wish(&[MAIN, 1])),
    ]
}

/// Clients that work beside each other and the collectors.
fn casts() -> Vec<Vec<Kind>> {
    use Kind::{Apart, Delete, Fault, Intact, Mend, Place, Push, Read, Rules};
    use Object::{Absent, Wrong};
    vec![
        vec![Place, Place, Rules(wish(&[MAIN]))],
        vec![Place, Place, Rules(wish(&[1]))],
        vec![Place, Place, Delete],
        vec![Place, Place, Read],
        vec![Place, Read, Rules(wish(&[MAIN]))],
        vec![Place, Place, Fault(1, Absent)],
        vec![Place, Place, Fault(MAIN, Absent)],
        vec![Place, Rules(wish(&[1])), Fault(1, Wrong)],
        vec![Place, Rules(wish(&[MAIN])), Fault(MAIN, Wrong)],
        vec![Place, Mend(true), Fault(MAIN, Absent)],
        vec![Place, Mend(false), Fault(MAIN, Wrong)],
        vec![Place, Mend(true), Fault(1, Wrong)],
        vec![Place, Mend(true), Rules(wish(&[1]))],
        vec![Mend(true), Mend(false), Fault(MAIN, Absent)],
        vec![Mend(true), Delete, Fault(MAIN, Wrong)],
        vec![Place, Delete, Push],
        vec![Place, Push, Fault(MAIN, Absent)],
        vec![Place, Apart, Intact],
        vec![Apart, Intact, Intact],
        vec![Apart, Intact, Push],
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
fn in_no_order_of_steps_do_placers_lose_or_leave_anything() {
    let explored = casts()
        .into_iter()
        .map(|cast| explore_cast(&cast, Variant::Protocol).map_err(|story| format!("{cast:?}: {story}")));
    let states: usize = explored.sum::<Result<usize, String>>().unwrap();
    assert!(states > 50_000, "only {states} states: the model does nothing");
}

/// Each with clients that find it out soon.
#[test]
fn each_rule_of_placing_is_needed() {
    use Kind::{Apart, Delete, Fault, Intact, Mend, Place, Push, Read, Rules};
    use Object::{Absent, Wrong};
    let variants = [
        (Variant::LeaveUnlooked, [Place, Place, Rules(wish(&[1]))]),
        (Variant::NameKept, [Place, Place, Read]),
        (Variant::RenamedAlone, [Place, Place, Read]),
        (Variant::RecordStale, [Place, Place, Delete]),
        (Variant::HomeStale, [Place, Place, Delete]),
        (Variant::DraftsUnlooked, [Place, Place, Delete]),
        (Variant::DraftLater, [Place, Place, Delete]),
        (Variant::Unproven, [Place, Rules(wish(&[1])), Fault(1, Wrong)]),
        (
            Variant::HomeUnproven,
            [Place, Rules(wish(&[MAIN])), Fault(MAIN, Wrong)],
        ),
        (Variant::DropUnlooked, [Place, Place, Fault(MAIN, Absent)]),
        (Variant::DropFirst, [Place, Place, Delete]),
        (Variant::ReplicasStay, [Place, Place, Delete]),
        (Variant::ChangeUnnoted, [Place, Place, Rules(wish(&[MAIN]))]),
        (Variant::PlacedUnlooked, [Place, Place, Rules(wish(&[MAIN]))]),
        (Variant::DamageStale, [Place, Mend(true), Rules(wish(&[1]))]),
        (Variant::DamageUnlooked, [Place, Mend(true), Fault(MAIN, Absent)]),
        (Variant::IntactUnlooked, [Apart, Intact, Intact]),
        (Variant::PushUnlooked, [Place, Push, Fault(MAIN, Absent)]),
        (Variant::SweptOnce, [Place, Place, Delete]),
        (Variant::ReadOnce, [Place, Place, Read]),
    ];
    for (variant, cast) in variants {
        assert!(casts().contains(&cast.to_vec()), "{cast:?} is not explored");
        assert!(
            explore_cast(&cast, variant).is_err(),
            "without that rule nothing goes wrong: {variant:?}"
        );
    }
}
