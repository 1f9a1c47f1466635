use proptest::prelude::*;
use xebec_placement::{Code, Kept, MAX_NAME, PlaceName, Placement, Wanted};

use crate::made::{any_placement, any_wanted, name};

fn refused<T: std::str::FromStr>(text: &str) -> String
where
    T::Err: std::fmt::Display,
{
    match text.parse::<T>() {
        Ok(_) => panic!("{text:?} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn names_of_places() {
    for good in ["a", "main", "cold-2", &"x".repeat(MAX_NAME)] {
        assert_eq!(good.parse::<PlaceName>().unwrap().to_string(), good);
    }
    for bad in [
        "",
        "2a",
        "-a",
        "A",
        "a_b",
        "a b",
        "a@b",
        "ä",
        &"x".repeat(MAX_NAME + 1),
    ] {
        assert!(refused::<PlaceName>(bad).contains("is not the name of a place"));
    }
    assert!(PlaceName::main().is_main() && name("main").is_main() && !name("mainz").is_main());
    let long = refused::<PlaceName>(&"y".repeat(1000));
    assert!(long.len() < 300, "{long}");
}

#[test]
fn codes_have_both_kinds_of_shards_and_sixteen_at_most() {
    for (data, parity, sound) in [
        (1, 1, true),
        (8, 8, true),
        (15, 1, true),
        (0, 1, false),
        (1, 0, false),
        (16, 1, false),
        (255, 255, false),
    ] {
        assert_eq!(Code::new(data, parity).is_ok(), sound, "{data}+{parity}");
        assert_eq!(
            format!("{data}+{parity}").parse::<Code>().is_ok(),
            sound,
            "{data}+{parity}"
        );
    }
    let code = Code::new(4, 2).unwrap();
    assert_eq!((code.data(), code.parity(), code.shards()), (4, 2, 6));
    for bad in ["", "2", "2+", "+1", "02+1", "2++1", "2+1 ", "2-1", "256+1"] {
        assert!(refused::<Code>(bad).contains("is not a code"), "{bad}");
    }
}

#[test]
fn a_placement_says_what_is_wrong_with_it() {
    let spread: Placement = "b,a,main(2+1)".parse().unwrap();
    assert_eq!(spread.places(), [name("b"), name("a"), name("main")]);
    assert_eq!(spread.needs(), 2);
    for (text, fault) in [
        ("", "is not the name of a place"),
        ("a,b", "does not say how many of the places suffice"),
        ("a,b(2+1)", "names 2 places, and its code needs 3"),
        ("a,b,c,d(2+1)", "names 4 places"),
        ("a,b,a(2+1)", "names the place a twice"),
        ("a,b,(2+1)", "is not the name of a place"),
        ("a,b,c(3)", "is not a code"),
        ("a,b,c(2+1) ", "does not say"),
        ("a(b(2+1)", "is not a code"),
    ] {
        let error = refused::<Placement>(text);
        assert!(error.contains(fault), "{text}: {error}");
    }
}

#[test]
fn a_set_of_copies_is_read_strictly() {
    for text in [
        "",
        "intact@main",
        "intact@a intact@main files@cold",
        "chunks@cold chunks@a,b,c(2+1)",
    ] {
        assert_eq!(text.parse::<Wanted>().unwrap().to_string(), text);
    }
    for (text, fault) in [
        (" ", r#""" is not a copy"#),
        ("intact@main ", r#""" is not a copy"#),
        ("intact@a  intact@b", r#""" is not a copy"#),
        ("intact@main\n", "is not a copy"),
        (
            "whole@main",
            r#""whole@main" is not a copy; write intact, files or chunks"#,
        ),
        ("intact", r#""intact" is not a copy"#),
        ("intact@a intact@a", r#"the word "intact@a" is not behind"#),
        ("intact@b intact@a", r#"the word "intact@a" is not behind"#),
        ("files@a intact@b", r#"the word "intact@b" is not behind"#),
        (
            "intact@a,b(1+2)",
            r#""intact@a,b(1+2)" is not a copy: "a,b(1+2)" names 2 places"#,
        ),
        (
            "files@a chunks@b",
            "files@a and chunks@b ask for two recipes, and a blob has one recipe",
        ),
    ] {
        let error = refused::<Wanted>(text);
        assert!(error.contains(fault), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn placements_are_read_back(placement in any_placement()) {
        prop_assert_eq!(placement.to_string().parse::<Placement>().unwrap(), placement);
    }

    #[test]
    fn sets_are_read_back(wanted in any_wanted()) {
        prop_assert_eq!(wanted.to_string().parse::<Wanted>().unwrap(), wanted.clone());
        let copies: Vec<Kept> = wanted.kept().collect();
        let sorted = copies.windows(2).all(|pair| pair[0] < pair[1]);
        prop_assert!(sorted);
        prop_assert_eq!(Wanted::of(&copies).unwrap(), wanted);
    }

    #[test]
    fn what_is_taken_is_written_as_it_was(text in "((intact|files|chunks|x)@[ab]?(,[abc]){0,3}(\\([0-4]\\+[0-4]\\))? ?){0,4}") {
        if let Ok(wanted) = text.parse::<Wanted>() {
            prop_assert_eq!(wanted.to_string(), text);
        }
    }
}
