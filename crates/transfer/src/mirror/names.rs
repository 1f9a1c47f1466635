//! Which repository there is which one here, and which tags belong to which manifest. Pure.

use std::collections::HashMap;

use xebec_oci::Repository;
use xebec_settings::pattern::RepositoryPattern;
use xebec_store::{Digest, RepositoryName};

/// A repository, as both registries know it.
pub(super) struct Pair {
    pub(super) here: RepositoryName,
    pub(super) there: Repository,
}

impl Pair {
    /// Of a name there; what is wrong with it, if it cannot be a name here.
    pub(super) fn new(registry: &str, name: &str, to: &str) -> Result<Self, String> {
        let there = Repository::new(registry, name).map_err(|error| error.to_string())?;
        let here = match to.is_empty() {
            true => name.to_owned(),
            false => format!("{to}/{name}"),
        };
        let here = here
            .parse()
            .map_err(|error: xebec_store::InvalidName| error.to_string())?;
        Ok(Self { here, there })
    }
}

/// Whether a name is the prefix itself or below it.
pub(super) fn is_below(prefix: &str, name: &str) -> bool {
    prefix.is_empty()
        || name == prefix
        || name
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// The names that patterns without a star are; `None` if one has a star, so that a list has to be asked for.
pub(super) fn literal(patterns: &[RepositoryPattern]) -> Option<Vec<String>> {
    let names: Vec<String> = patterns.iter().map(RepositoryPattern::to_string).collect();
    let are_names = !names.is_empty() && names.iter().all(|name| !name.contains('*'));
    are_names.then_some(names)
}

/// The manifest to which a tag belongs by its name, and what follows: `sha256-HEX` lists what refers to it, `sha256-HEX.sig` and the like
/// are what cosign attaches.
pub(super) fn belongs(tag: &str) -> Option<(Digest, &str)> {
    let rest = tag.strip_prefix("sha256-")?;
    let (hex, suffix) = rest.split_at_checked(64)?;
    let is_attached = suffix.is_empty() || suffix.starts_with('.');
    let digest = format!("sha256:{hex}").parse().ok()?;
    is_attached.then_some((digest, suffix))
}

/// The tags with a suffix, by the manifest to which they belong.
pub(super) fn attached(tags: &[String]) -> HashMap<Digest, Vec<String>> {
    let mut attached: HashMap<Digest, Vec<String>> = HashMap::new();
    for tag in tags {
        if let Some((digest, suffix)) = belongs(tag)
            && !suffix.is_empty()
        {
            attached.entry(digest).or_default().push(tag.clone());
        }
    }
    attached
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn names_here_are_those_there_below_a_prefix() {
        let pair = Pair::new("r.lan:5000", "team/app", "copies").unwrap();
        assert_eq!(pair.here.as_str(), "copies/team/app");
        assert_eq!(pair.there.name(), "team/app");
        assert_eq!(
            Pair::new("r.lan", "team/app", "").unwrap().here.as_str(),
            "team/app"
        );
        for name in ["../etc", "Team", "", "a//b"] {
            assert!(Pair::new("r.lan", name, "copies").is_err(), "{name}");
        }
        assert!(is_below("team", "team/app") && is_below("team", "team") && is_below("", "x"));
        assert!(!is_below("team", "teamwork"));
    }

    #[test]
    fn patterns_without_stars_are_names() {
        let patterns = |texts: &[&str]| -> Vec<RepositoryPattern> {
            texts
                .iter()
                .map(|text| RepositoryPattern::parse(text).unwrap())
                .collect()
        };
        assert_eq!(
            literal(&patterns(&["a/b", "c"])),
            Some(vec!["a/b".to_owned(), "c".to_owned()])
        );
        assert_eq!(literal(&patterns(&["a/b", "c/*"])), None);
        assert_eq!(literal(&[]), None);
    }

    #[test]
    fn tags_of_signatures_belong_to_a_manifest() {
        let hex = "a".repeat(64);
        let of = |suffix: &str| {
            belongs(&format!("sha256-{hex}{suffix}"))
                .map(|(digest, suffix)| (digest.hex() == hex, suffix.to_owned()))
        };
        assert_eq!(of(""), Some((true, String::new())));
        assert_eq!(of(".sig"), Some((true, ".sig".to_owned())));
        assert_eq!(of("sig"), None);
        assert_eq!(belongs("latest"), None);
        assert_eq!(belongs("sha256-äää"), None);
        let tags = vec![
            format!("sha256-{hex}"),
            format!("sha256-{hex}.att"),
            "v1".to_owned(),
        ];
        assert_eq!(
            attached(&tags).into_values().next().unwrap(),
            [format!("sha256-{hex}.att")]
        );
    }
}
