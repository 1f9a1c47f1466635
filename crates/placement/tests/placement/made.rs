//! What the tests are made of.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;
use xebec_placement::{Code, Form, Kept, PlaceName, Placement, Wanted};

/// So few that each set of them is tried.
pub(crate) const PLACES: [&str; 8] = ["a", "b", "c", "d", "e-2", "far", "main", "z"];

pub(crate) fn name(text: &str) -> PlaceName {
    text.parse().unwrap()
}

pub(crate) fn wanted(text: &str) -> Wanted {
    text.parse().unwrap()
}

pub(crate) fn any_placement() -> impl Strategy<Value = Placement> {
    let places = subsequence(PLACES.to_vec(), 1..=PLACES.len()).prop_shuffle();
    (places, any::<prop::sample::Index>()).prop_map(|(places, data)| {
        let places: Vec<PlaceName> = places.into_iter().map(name).collect();
        if places.len() == 1 {
            return Placement::At(places[0].clone());
        }
        let shards = u8::try_from(places.len()).unwrap();
        let data = 1 + u8::try_from(data.index(places.len() - 1)).unwrap();
        Placement::spread(Code::new(data, shards - data).unwrap(), places).unwrap()
    })
}

pub(crate) fn any_wanted() -> impl Strategy<Value = Wanted> {
    let apart = prop_oneof![Just(Form::Files), Just(Form::Chunks)];
    (vec(any_placement(), 0..4), vec(any_placement(), 0..4), apart).prop_map(|(intact, apart, form)| {
        let kept = |form| move |on| Kept { form, on };
        let intact = intact.into_iter().map(kept(Form::Intact));
        let all: Vec<Kept> = intact.chain(apart.into_iter().map(kept(form))).collect();
        Wanted::of(&all).unwrap()
    })
}
