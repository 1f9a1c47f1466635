use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use xebec_placement::{PlaceName, Wanted};
use xebec_policy::copies::{CopyRule, CopyRules};

fn places() -> BTreeSet<PlaceName> {
    ["main", "cold", "a", "b", "c"]
        .map(|name| name.parse().unwrap())
        .into()
}

fn wanted(text: &str) -> Wanted {
    text.parse().unwrap()
}

/// The rules, each in TOML.
fn rules(texts: &[&str]) -> Result<CopyRules, String> {
    let mut rules = CopyRules::default_for(wanted("intact@main"));
    for text in texts {
        let rule: CopyRule = toml::from_str(text).map_err(|error| error.to_string())?;
        rules.add(rule, &places()).map_err(|error| error.to_string())?;
    }
    Ok(rules)
}

const TEAM: &str = r#"repositories = "team/**"
keep = ["files@cold", "files@a,b,c(2+1)"]
popular = { pulls = 10, within = "1d", keep = ["intact@main", "files@cold"] }"#;

#[test]
fn the_first_rule_that_covers_a_repository_counts() {
    let rules = rules(&[
        "repositories = 'team/cache'\nkeep = ['intact@a']",
        TEAM,
        "repositories = 'team/*'\nkeep = ['intact@b']",
    ])
    .unwrap();
    assert_eq!(rules.of("team/cache"), &wanted("intact@a"));
    assert_eq!(rules.popular("team/cache"), None);
    assert_eq!(rules.of("team/app"), &wanted("files@cold files@a,b,c(2+1)"));
    let popular = rules.popular("team/app").unwrap();
    assert_eq!((popular.pulls, popular.within), (10, Duration::from_secs(86_400)));
    assert_eq!(popular.wanted, wanted("intact@main files@cold files@a,b,c(2+1)"));
    assert_eq!(rules.of("other"), &wanted("intact@main"));
    assert_eq!(rules.popular("other"), None);
    assert!(!rules.is_empty());
}

#[test]
fn without_rules_there_is_one_answer() {
    let rules = CopyRules::default_for(wanted("files@main"));
    assert!(rules.is_empty());
    assert_eq!(rules.of("any"), &wanted("files@main"));
    assert_ne!(
        rules.fingerprint(),
        CopyRules::default_for(wanted("intact@main")).fingerprint()
    );
}

#[test]
fn faults_of_rules_are_named_with_what_to_do() {
    let all = "repositories = 'x/**'\n";
    for (texts, parts) in [
        (vec!["keep = []"], ["keeps nothing", "name a copy in keep"]),
        (
            vec!["keep = ['intact@a', 'intact@a']"],
            ["lists intact@a twice", "needs another place"],
        ),
        (
            vec!["keep = ['intact@far']"],
            ["names the place far in intact@far", "a, b, c, cold, main"],
        ),
        (
            vec!["keep = ['files@a,far(1+1)']"],
            ["names the place far in files@a,far(1+1)", "add a [[place]]"],
        ),
        (
            vec!["keep = ['files@a', 'chunks@b']"],
            ["files@a and chunks@b", "a blob has one recipe"],
        ),
        (
            vec!["keep = ['whole@a']"],
            ["\"whole@a\" is not a copy", "line 2"],
        ),
        (vec!["keep = ['intact@a']\nkept = 1"], ["unknown field", "kept"]),
        (
            vec!["popular = { pulls = 1, within = '1d', keep = ['intact@a'] }"],
            ["missing field", "keep"],
        ),
        (
            vec!["keep = ['intact@a']\npopular = { pulls = 1, within = '1d', keep = [] }"],
            ["keeps nothing more of what is popular", "remove popular"],
        ),
        (
            vec![
                "keep = ['intact@a', 'intact@b']\npopular = { pulls = 1, within = '1d', keep = ['intact@b'] }",
            ],
            ["keeps nothing more of what is popular", "remove popular"],
        ),
        (
            vec!["keep = ['files@a']\npopular = { pulls = 1, within = '1d', keep = ['chunks@b'] }"],
            ["files@a and chunks@b", "a blob has one recipe"],
        ),
        (
            vec!["keep = ['files@a']\npopular = { pulls = 1, within = '1d', keep = ['intact@far'] }"],
            ["names the place far", "add a [[place]]"],
        ),
        (
            vec!["keep = ['files@a']\npopular = { pulls = 0, within = '1d', keep = ['intact@b'] }"],
            ["by no pulls", "pulls = 1"],
        ),
        (
            vec!["keep = ['files@a']\npopular = { pulls = 1, within = '0s', keep = ['intact@b'] }"],
            ["by no pulls or no time", "within"],
        ),
        (
            vec!["keep = ['files@a']", "keep = ['files@b']"],
            ["never counts", "move it before"],
        ),
    ] {
        let texts: Vec<String> = texts.iter().map(|text| format!("{all}{text}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let error = rules(&texts).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(error.contains("x/**") || error.contains("line"), "{error}");
    }
    let error = rules(&["repositories = '**'\nkeep = ['intact@a']", TEAM]).unwrap_err();
    assert!(
        error.contains("\"team/**\" never counts, since the rule for \"**\""),
        "{error}"
    );
    // A rule for all may be the last, and one that overlaps may follow.
    rules(&[
        TEAM,
        "repositories = 'team/*'\nkeep = ['intact@a']",
        "repositories = '**'\nkeep = ['intact@a']",
    ])
    .unwrap();
}

#[test]
fn a_rule_that_is_refused_leaves_no_trace() {
    let mut rules = rules(&[TEAM]).unwrap();
    let before = rules.clone();
    let rule: CopyRule = toml::from_str("repositories = 'x'\nkeep = ['intact@far']").unwrap();
    rules.add(rule, &places()).unwrap_err();
    assert_eq!(rules, before);
}

#[test]
fn the_fingerprint_changes_with_what_is_kept() {
    let print = |texts: &[&str]| rules(texts).unwrap().fingerprint();
    let one = "repositories = 'a'\nkeep = ['intact@a', 'files@b']";
    let other = "repositories = '*'\nkeep = ['intact@a']";
    assert_eq!(
        print(&[one]),
        print(&["repositories = 'a'\nkeep = ['files@b', 'intact@a']"])
    );
    let different = [
        print(&[]),
        print(&[one]),
        print(&[one, other]),
        print(&[other, one]),
        print(&[TEAM]),
        print(&[&TEAM.replace("pulls = 10", "pulls = 11")]),
        print(&[&TEAM.replace("1d", "2d")]),
        print(&[&TEAM.replace("2+1", "1+2")]),
        print(&[&TEAM.replace("intact@main", "intact@a")]),
        print(&[&TEAM.replace("team/**", "team/*")]),
    ];
    let distinct: BTreeSet<&String> = different.iter().collect();
    assert_eq!(distinct.len(), different.len(), "{different:#?}");
}

fn any_rule() -> impl Strategy<Value = (String, Vec<String>, Vec<String>)> {
    let patterns = prop::sample::select(vec!["a", "b", "a/*", "a/**", "*/a", "**/b", "**"]);
    let copies = prop::sample::subsequence(
        vec!["intact@main", "intact@a", "files@cold", "files@a,b(1+1)"],
        1..=4,
    );
    let more = prop::sample::subsequence(vec!["intact@b", "intact@main", "files@c", "chunks@c"], 0..=3);
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
    (patterns, copies, more)
        .prop_map(move |(pattern, keep, more)| (pattern.to_owned(), owned(keep), owned(more)))
}

proptest! {
    /// A rule that was taken counts for some name, and what is popular has all that others have.
    #[test]
    fn rules_count_in_their_order(texts in prop::collection::vec(any_rule(), 0..6), name in "[abc](/[abc]){0,2}") {
        let mut rules = CopyRules::default_for(wanted("intact@c"));
        let mut taken = Vec::new();
        for (pattern, keep, more) in texts {
            let text = format!("repositories = {pattern:?}\nkeep = {keep:?}\npopular = {{ pulls = 3, within = '1h', keep = {more:?} }}");
            let rule: CopyRule = toml::from_str(&text).unwrap();
            if rules.add(rule.clone(), &places()).is_ok() {
                taken.push(rule);
            }
        }
        prop_assert_eq!(rules.is_empty(), taken.is_empty());
        let first = taken.iter().find(|rule| rule.repositories.covers(&name));
        let kept: Vec<_> = first.iter().flat_map(|rule| &rule.keep).map(|kept| kept.0.clone()).collect();
        let expected = match first {
            Some(_) => Wanted::of(&kept).unwrap(),
            None => wanted("intact@c"),
        };
        prop_assert_eq!(rules.of(&name), &expected);
        prop_assert_eq!(rules.popular(&name).is_some(), first.is_some());
        if let Some(popular) = rules.popular(&name) {
            prop_assert_eq!(&popular.wanted.union(rules.of(&name)), &popular.wanted);
            prop_assert_ne!(&popular.wanted, rules.of(&name));
            prop_assert!(popular.wanted.places().is_subset(&places()));
        }
        prop_assert!(rules.of(&name).places().is_subset(&places()));
    }
}
