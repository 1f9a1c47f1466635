//! The records and objects of a blob, and of its copies on two places beside the main one.

use super::Variant;
use super::clients::Client;

/// Clients have numbers below it. One more is for those who put all in order at the end.
const SLOTS: usize = 4;
/// The main place, and all.
pub(super) const MAIN: usize = 0;
pub(super) const PLACES: usize = 3;
/// The key of the object that a push brings.
pub(super) const PUSHED: u8 = 3;
/// Keys of objects: one of each place that is there at first, one of a push, and one of each place and client.
const KEYS: usize = 4 + PLACES * SLOTS;
/// Names of objects that are away come after all keys.
pub(super) const AWAY: u8 = 30;

/// The key that a client writes on a place.
pub(super) fn key(client: usize, place: usize) -> u8 {
    u8::try_from(4 + PLACES * client + place).unwrap()
}

/// The name of an object that a client takes from the main place.
pub(super) fn away(client: usize) -> u8 {
    AWAY + 1 + u8::try_from(client).unwrap()
}

pub(super) fn is_main(name: u8) -> bool {
    name < AWAY
}

fn place_of(key: usize) -> usize {
    match key {
        0..PLACES => key,
        _ if key == usize::from(PUSHED) => MAIN,
        _ => (key - 4) % PLACES,
    }
}

/// A set of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wish(pub(super) [bool; PLACES]);

impl Wish {
    pub(super) fn has(self, place: usize) -> bool {
        self.0[place]
    }

    /// Whether it is that place alone.
    fn is_only(self, place: usize) -> bool {
        (0..PLACES).all(|other| self.has(other) == (other == place))
    }
}

/// A set of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Keys(u16);

impl Keys {
    pub(super) fn has(self, key: u8) -> bool {
        self.0 & 1 << key != 0
    }

    pub(super) fn add(&mut self, key: u8) {
        self.0 |= 1 << key;
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, key: u8) -> bool {
        let had = self.has(key);
        self.0 &= !(1 << key);
        had
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn all(self) -> impl Iterator<Item = u8> {
        keys().filter(move |key| self.has(*key))
    }
}

pub(super) fn keys() -> std::ops::Range<u8> {
    0..u8::try_from(KEYS).unwrap()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Object {
    #[default]
    Absent,
    /// It has as many bytes as it should have.
    Wrong,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Blob {
    /// The name of its object; none if it is not intact. Then it has a recipe, with which nothing is wrong.
    pub(super) name: Option<u8>,
    pub(super) is_linked: bool,
    pub(super) damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    pub(super) of: u8,
    pub(super) damaged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) blob: Option<Blob>,
    /// By their keys.
    pub(super) replicas: [Option<Replica>; KEYS],
    pub(super) objects: [Object; KEYS],
    pub(super) drafts: Keys,
    pub(super) garbage: Keys,
    pub(super) being_written: Keys,
    /// Those whose writers died. The server may still store them.
    pub(super) late: Keys,
    pub(super) has_upload: bool,
    pub(super) wish: Wish,
    /// The blob is to be looked at.
    pub(super) unplaced: bool,
    pub(super) clients: Vec<Client>,
    /// Something was lost or damaged.
    pub(super) had_fault: bool,
    /// It was the only copy that there was, or that was wanted.
    pub(super) excused: bool,
    /// The fault that a client found.
    pub(super) complaint: Option<&'static str>,
}

impl State {
    /// The blob is on these places, and wanted on others.
    pub(super) fn at(places: Wish, wish: Wish) -> Self {
        let name = if places.has(MAIN) { 0 } else { AWAY };
        let mut state = Self {
            blob: Some(Blob {
                name: Some(name),
                is_linked: true,
                damaged: false,
            }),
            replicas: [None; KEYS],
            objects: [Object::Absent; KEYS],
            drafts: Keys::default(),
            garbage: Keys::default(),
            being_written: Keys::default(),
            late: Keys::default(),
            has_upload: false,
            wish,
            unplaced: places != wish,
            clients: Vec::new(),
            had_fault: false,
            excused: false,
            complaint: None,
        };
        for place in (0..PLACES).filter(|place| places.has(*place)) {
            state.objects[place] = Object::Right;
            state.replicas[place] = (place != MAIN).then_some(Replica {
                of: name,
                damaged: false,
            });
        }
        state
    }

    pub(super) fn object(&self, key: u8) -> Object {
        self.objects[usize::from(key)]
    }

    pub(super) fn set(&mut self, key: u8, object: Object) {
        self.objects[usize::from(key)] = object;
    }

    pub(super) fn replica(&self, key: u8) -> Option<Replica> {
        self.replicas[usize::from(key)]
    }

    /// The name of the blob's object now.
    pub(super) fn name(&self) -> Option<u8> {
        self.blob.and_then(|blob| blob.name)
    }

    /// The keys of the replicas of an object, damaged ones included.
    pub(super) fn replicas_of(&self, name: u8) -> Vec<u8> {
        keys()
            .filter(|key| self.replica(*key).is_some_and(|replica| replica.of == name))
            .collect()
    }

    /// The keys of those that are not known to be damaged.
    pub(super) fn sound_of(&self, name: u8) -> Vec<u8> {
        let mut found = self.replicas_of(name);
        found.retain(|key| self.replica(*key).is_some_and(|replica| !replica.damaged));
        found
    }

    pub(super) fn is_at(key: u8, place: usize) -> bool {
        place_of(usize::from(key)) == place
    }

    /// The blob is to be looked at: who has looked at it before has not seen all.
    pub(super) fn change(&mut self) {
        self.unplaced = true;
        self.clients.iter_mut().for_each(|client| client.is_fresh = false);
    }

    /// The part of a transaction by which what there is of the blob changes.
    pub(super) fn note_change(&mut self, variant: Variant) {
        if variant != Variant::ChangeUnnoted {
            self.change();
        }
    }

    pub(super) fn note_replica(&mut self, key: u8, damaged: bool) {
        if let Some(replica) = &mut self.replicas[usize::from(key)] {
            replica.damaged = damaged;
            if damaged {
                self.change();
            }
        }
    }

    pub(super) fn drop_replica(&mut self, key: u8) {
        self.replicas[usize::from(key)] = None;
        self.garbage.add(key);
    }

    /// The part of a transaction by which an object is garbage.
    pub(super) fn release(&mut self, name: u8, variant: Variant) {
        if is_main(name) {
            self.garbage.add(name);
        }
        if variant != Variant::ReplicasStay {
            for key in self.replicas_of(name) {
                self.drop_replica(key);
            }
        }
    }

    pub(super) fn rename(&mut self, from: u8, to: u8, variant: Variant) {
        if let Some(blob) = &mut self.blob {
            blob.name = Some(to);
        }
        for replica in self.replicas.iter_mut().flatten() {
            if replica.of == from && variant != Variant::RenamedAlone {
                replica.of = to;
            }
        }
        self.note_change(variant);
    }

    /// Whether all of these are records of replicas of an object, and none is known to be damaged.
    pub(super) fn are_sound(&self, name: u8, kept: Keys) -> bool {
        let sound = self.sound_of(name);
        !kept.is_empty() && kept.all().all(|key| sound.contains(&key))
    }

    /// Whether a copy has right bytes, of which the records know.
    pub(super) fn is_readable(&self, name: u8) -> bool {
        let main = is_main(name).then_some(name);
        let mut copies = main.into_iter().chain(self.sound_of(name));
        copies.any(|key| self.object(key) == Object::Right)
    }

    /// The transaction by which an object leaves the main place. If it has another name by now, no replicas have this one.
    pub(super) fn leave_main(&mut self, client: usize, name: u8, kept: Keys, variant: Variant) -> Option<u8> {
        let is_kept = match variant {
            Variant::LeaveUnlooked => self.name() == Some(name),
            _ => self.are_sound(name, kept),
        };
        if !is_kept || !is_main(name) {
            return None;
        }
        self.garbage.add(name);
        if variant == Variant::NameKept {
            return Some(name);
        }
        self.rename(name, away(client), variant);
        Some(away(client))
    }

    /// The transaction by which an object comes to the main place, as the client's draft.
    pub(super) fn bring_home(&mut self, client: usize, name: u8, variant: Variant) -> bool {
        let home = key(client, MAIN);
        let is_current = self.name() == Some(name) || variant == Variant::HomeStale;
        if !is_current || !(self.drafts.remove(home) || variant == Variant::DraftsUnlooked) {
            if self.drafts.remove(home) {
                self.garbage.add(home);
            }
            return false;
        }
        self.rename(name, home, variant);
        if is_main(name) {
            self.garbage.add(name);
        }
        true
    }

    /// A disk loses all that it has, or damages it.
    pub(super) fn fail(&mut self, place: usize, object: Object) {
        for key in keys().filter(|key| Self::is_at(*key, place)) {
            if self.object(key) == Object::Right {
                self.set(key, object);
            }
        }
        self.had_fault = true;
        let wishes = self.clients.iter().map(|client| client.wish);
        let is_only = wishes.chain([self.wish]).any(|wish| wish.is_only(place));
        // What was just pushed has no copy yet.
        let is_pushed = self.has_upload && place == MAIN;
        self.excused |= is_only || is_pushed || self.name().is_some_and(|name| !self.is_readable(name));
    }

    /// How many records an object has.
    fn records(&self, key: u8) -> usize {
        let all = [
            self.name() == Some(key),
            self.replica(key).is_some(),
            self.drafts.has(key),
            self.garbage.has(key),
            self.has_upload && key == PUSHED,
        ];
        all.into_iter().filter(|is_so| *is_so).count()
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.complaint.is_some() {
            return self.complaint;
        }
        if let Some(name) = self.blob.filter(|blob| !blob.damaged).and_then(|blob| blob.name)
            && !self.excused
            && !self.is_readable(name)
        {
            return Some("no copy of a blob has right bytes");
        }
        if self
            .replicas
            .iter()
            .flatten()
            .any(|replica| Some(replica.of) != self.name())
        {
            return Some("a replica is of no object");
        }
        keys().find_map(|key| match (self.records(key), self.object(key)) {
            (0, Object::Right | Object::Wrong) => Some("an object has no record"),
            (0 | 1, _) => None,
            _ => Some("an object has two records"),
        })
    }

    /// The fault in what all who put things in order have left.
    pub(super) fn left(&self) -> Option<&'static str> {
        if self.fault().is_some() {
            return self.fault();
        }
        if !self.garbage.is_empty() || !self.drafts.is_empty() || self.has_upload {
            return Some("an object that nothing needs stays");
        }
        let blob = self.blob?;
        if !blob.is_linked {
            return Some("a blob that no repository has stays");
        }
        let name = blob.name.filter(|_| !blob.damaged)?;
        let is_as_wanted = (0..PLACES).all(|place| {
            let has = keys().any(|key| Self::is_at(key, place) && self.object(key) == Object::Right);
            has == self.wish.has(place)
        });
        let are_records = self.replicas_of(name).len() + usize::from(is_main(name));
        let are_wanted = (0..PLACES).filter(|place| self.wish.has(*place)).count();
        (!is_as_wanted || are_records != are_wanted).then_some("copies are not where they are wanted")
    }
}
