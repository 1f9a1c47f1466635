use std::collections::BTreeSet;

use proptest::prelude::*;
use xebec_placement::{Form, Kept, PlaceName, Placement, Wanted};

use crate::made::{PLACES, any_wanted, name, wanted};

#[test]
fn a_blob_has_one_recipe() {
    let kept = |text: &str| -> Kept { text.parse().unwrap() };
    let error = Wanted::of(&[kept("chunks@b"), kept("intact@a"), kept("files@c")]).unwrap_err();
    assert_eq!((error.files, error.chunks), (kept("files@c"), kept("chunks@b")));
    let twice = Wanted::of(&[kept("files@c"), kept("files@c")]).unwrap();
    assert_eq!(twice, wanted("files@c"));
    assert_eq!(Wanted::of(&[]).unwrap().form(), None);
}

#[test]
fn of_two_repositories_chunks_win() {
    let files = wanted("intact@main files@a files@cold");
    let chunks = wanted("intact@a chunks@cold");
    let both = wanted("intact@a intact@main chunks@a chunks@cold");
    assert_eq!(files.union(&chunks), both);
    assert_eq!(chunks.union(&files), both);
    assert_eq!(
        wanted("intact@a").union(&wanted("files@a")).form(),
        Some(Form::Files)
    );
    assert_eq!(
        both.places().into_iter().collect::<Vec<_>>(),
        [name("a"), name("cold"), name("main")]
    );
}

#[test]
fn what_survives() {
    for (text, survives) in [
        ("", 0),
        ("intact@main", 0),
        ("intact@main files@main", 0),
        ("intact@main files@cold", 1),
        ("files@a,b,c(2+1)", 1),
        ("intact@a files@a,b,c(2+1)", 1),
        ("intact@main files@a,b,c(2+1)", 2),
        ("files@a,b,c(2+1) files@c,d,e(2+1)", 2),
        ("files@a,b,c(1+2)", 2),
        ("intact@a intact@b intact@c", 2),
    ] {
        assert_eq!(wanted(text).survives(), survives, "{text}");
    }
}

/// Beyond the places of which each set is tried, copies that share none are added up.
#[test]
fn many_places_survive_at_least_what_disjoint_copies_do() {
    let placement = |letter: char| {
        let places: Vec<PlaceName> = (0..9).map(|number| name(&format!("{letter}{number}"))).collect();
        Placement::spread("6+3".parse().unwrap(), places).unwrap()
    };
    let kept: Vec<Kept> = ['a', 'b', 'c']
        .map(|letter| Kept {
            form: Form::Files,
            on: placement(letter),
        })
        .into();
    assert_eq!(Wanted::of(&kept).unwrap().survives(), 4 * 3 - 1);
}

fn is_readable(placement: &Placement, lost: &BTreeSet<PlaceName>) -> bool {
    let here = placement
        .places()
        .iter()
        .filter(|place| !lost.contains(*place))
        .count();
    match placement {
        Placement::At(_) => here == 1,
        Placement::Spread { code, .. } => here >= usize::from(code.data()),
    }
}

/// Each number of places is tried with each set of so many.
fn survives_by_trying(wanted: &Wanted) -> usize {
    let whole = |lost: &BTreeSet<PlaceName>| {
        wanted
            .intact()
            .iter()
            .chain(wanted.apart())
            .any(|placement| is_readable(placement, lost))
    };
    let sets = (0_u32..1 << PLACES.len()).map(|mask| {
        let lost = PLACES.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
        lost.map(|(_, place)| name(place))
            .collect::<BTreeSet<PlaceName>>()
    });
    let fatal = sets
        .filter(|lost| !whole(lost))
        .map(|lost| lost.len())
        .min()
        .unwrap();
    fatal.saturating_sub(1)
}

proptest! {
    #[test]
    fn what_survives_is_what_trying_says(wanted in any_wanted()) {
        prop_assert_eq!(wanted.survives(), survives_by_trying(&wanted));
    }

    #[test]
    fn a_union_has_what_each_has(left in any_wanted(), right in any_wanted()) {
        let both = left.union(&right);
        prop_assert_eq!(&both, &right.union(&left));
        prop_assert_eq!(&both.union(&left), &both);
        prop_assert_eq!(both.form().is_some(), !both.apart().is_empty());
        for one in [&left, &right] {
            prop_assert!(both.intact().is_superset(one.intact()) && both.apart().is_superset(one.apart()));
            prop_assert!(both.survives() >= one.survives());
        }
        prop_assert_eq!(both.places(), &left.places() | &right.places());
        prop_assert_eq!(both.to_string().parse::<Wanted>().unwrap(), both);
    }
}
