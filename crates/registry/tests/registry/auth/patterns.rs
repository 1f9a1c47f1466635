//! Patterns over names, compared with a slow reading of the grammar.

use proptest::prelude::*;
use xebec_settings::pattern::{PatternError, RepositoryPattern, TagPattern};
use xebec_settings::period::Period;

fn covers(pattern: &str, name: &str) -> bool {
    RepositoryPattern::parse(pattern).unwrap().covers(name)
}

#[test]
fn stars_stand_for_characters_and_components() {
    for (pattern, name, expected) in [
        ("team/app", "team/app", true),
        ("team/app", "team/apps", false),
        ("team/*", "team/app", true),
        ("team/*", "team", false),
        ("team/*", "team/a/b", false),
        ("team/**", "team", true),
        ("team/**", "team/a/b/c", true),
        ("team/**", "teams/a", false),
        ("**", "anything/at/all", true),
        ("**/cache", "cache", true),
        ("**/cache", "a/b/cache", true),
        ("a/**/z", "a/z", true),
        ("a/**/z", "a/b/c/z", true),
        ("a/**/z", "a/b/c", false),
        ("app-*-ci", "app-x-y-ci", true),
        ("app-*-ci", "app-ci", false),
        ("*", "a", true),
        ("*", "a/b", false),
    ] {
        assert_eq!(covers(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn a_pattern_that_no_name_fits_is_refused() {
    for pattern in [
        "Team/*", "team/_x", "team/x-", ".team", "a..b", "a___b", "a._*", "team:v1", "a b", "te@m", "a/-*",
        "ä", "*_",
    ] {
        let refused = RepositoryPattern::parse(pattern);
        assert!(
            matches!(refused, Err(PatternError::Impossible { .. })),
            "{pattern}: {refused:?}"
        );
    }
    for (pattern, expected) in [
        ("", "empty"),
        ("a//b", "empty"),
        ("/a", "empty"),
        ("a/***", "stand alone"),
        ("a**", "stand alone"),
    ] {
        let error = RepositoryPattern::parse(pattern).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let long = "a".repeat(256);
    assert!(matches!(
        RepositoryPattern::parse(&long),
        Err(PatternError::TooLong(..))
    ));
    for pattern in ["a-*", "*-a", "a__*", "a_*", "*", "a-*/b", "a*_*b"] {
        assert!(RepositoryPattern::parse(pattern).is_ok(), "{pattern}");
    }
    for pattern in ["-v", ".v*", "v 1", "v/1", "", "v:1"] {
        assert!(TagPattern::parse(pattern).is_err(), "{pattern}");
    }
    assert!(TagPattern::parse("v*").unwrap().covers("v1.2.3"));
    assert!(!TagPattern::parse("v*").unwrap().covers("latest"));
}

#[test]
fn the_more_specific_pattern_is_the_one_with_more_of_its_own() {
    let ascending = [
        "**",
        "**/cache",
        "*",
        "a*",
        "team/**",
        "team/**/x",
        "team/*",
        "team/app*",
        "team/app",
    ];
    for pair in ascending.windows(2) {
        let rank = |pattern: &str| RepositoryPattern::parse(pattern).unwrap().specificity();
        assert!(rank(pair[0]) < rank(pair[1]), "{pair:?}");
    }
}

/// The grammar of a component, read by hand.
fn is_component(text: &str) -> bool {
    let mut rest = text;
    loop {
        let word = rest
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()))
            .unwrap_or(rest.len());
        if word == 0 {
            return false;
        }
        rest = &rest[word..];
        if rest.is_empty() {
            return true;
        }
        let between = rest
            .find(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (separator, after) = rest.split_at(between);
        if !matches!(separator, "." | "_" | "__") && separator.bytes().any(|byte| byte != b'-') {
            return false;
        }
        rest = after;
    }
}

proptest! {
    #[test]
    fn a_name_without_stars_is_a_pattern_if_the_grammar_has_it(text in "[aB._-]{1,6}") {
        prop_assert_eq!(RepositoryPattern::parse(&text).is_ok(), is_component(&text), "{}", text);
    }

    /// Each star is tried with all short texts; what some of them makes a name is possible.
    #[test]
    fn possible_is_what_some_text_makes_a_name(text in "[a._*-]{1,5}") {
        prop_assume!(!text.contains("**"));
        let fillings = ["", "a", ".a", "a.", "_a", "a_", "__a", "a__", "-a", "a-", "-", "_", ".a.", "_a_", "__a__", "a.a", "-a-",
            ".a_", "_a.", ".a-", "-a.", "_a-", "-a_", ".a__", "__a.", "__a_", "_a__", "__a-", "-a__"];
        let stars = text.matches('*').count();
        let mut names = vec![text.clone()];
        for _ in 0..stars {
            names = names.iter().flat_map(|name| fillings.iter().map(move |filling| name.replacen('*', filling, 1))).collect();
        }
        let possible = names.iter().any(|name| is_component(name));
        prop_assert_eq!(RepositoryPattern::parse(&text).is_ok(), possible, "{}", text);
    }

    #[test]
    fn a_pattern_covers_what_it_was_made_of(name in "[a-c]{1,3}(/[a-c]{1,3}){0,4}", cut in 0_usize..4) {
        prop_assert!(covers(&name, &name));
        prop_assert!(covers("**", &name));
        let parts: Vec<&str> = name.split('/').collect();
        let cut = cut.min(parts.len() - 1);
        let mut starred = parts.clone();
        starred[cut] = "*";
        prop_assert!(covers(&starred.join("/"), &name));
        let below = format!("{}/**", parts[..=cut].join("/"));
        prop_assert!(covers(&below, &name));
    }

    #[test]
    fn patterns_and_periods_are_read_or_refused(text in "\\PC{0,40}") {
        let _ = RepositoryPattern::parse(&text);
        let _ = TagPattern::parse(&text);
        if let Ok(period) = text.parse::<Period>() {
            prop_assert_eq!(period.to_string().parse::<Period>(), Ok(period));
        }
    }

    #[test]
    fn periods_come_back_as_they_were(seconds in 0_u64..3_000_000_000) {
        let period = Period::seconds(seconds);
        prop_assert_eq!(period.to_string().parse::<Period>(), Ok(period));
    }
}
