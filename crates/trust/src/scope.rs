//! Names of repositories as policies compare them, and patterns over such names.
//!
//! Another spelling of a name must not escape a policy, so names are brought to one form first. The host is in
//! lower case, without a trailing dot or the default port of HTTPS, and Docker Hub's several hosts are
//! one.

use std::fmt;

use xebec_format::docker_hub::{DOCKER_HUB, registry_name};

/// Longest pattern or prefix in `trust.toml`, in bytes. Repository names are at most 255 bytes (OCI
/// distribution spec), hosts at most 253.
const MAX_PATTERN: usize = 512;

/// Longest name of a host and repository, in bytes; specified are 253 and 255.
const MAX_NAME: usize = 512;

/// Why something is not the name of a repository.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a registry and repository")]
pub struct NameError(String);

/// A registry host and a repository, normalized: `docker.io/library/nginx`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryName(String);

impl RepositoryName {
    /// The name of `repository` at the registry `registry` (`host` or `host:port`): what the *user* named,
    /// also when a mirror answers.
    ///
    /// # Errors
    /// An empty component, anything that could be a tag, a digest, a scheme or a wildcard, or a name too
    /// long.
    pub fn new(registry: &str, repository: &str) -> Result<Self, NameError> {
        let name = format!("{}/{}", normalize_host(registry), repository);
        let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '@' | '*' | '"' | '\\');
        let sound = !registry.contains('/')
            && !repository.contains(':')
            && name.len() <= MAX_NAME
            && !name.contains(strange)
            && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if sound {
            Ok(Self(name))
        } else {
            Err(NameError(name.chars().take(MAX_NAME).collect()))
        }
    }

    /// The name in a signature's `docker-reference`: any tag or digest is dropped, and a missing host is
    /// Docker Hub's.
    ///
    /// # Errors
    /// As for [`RepositoryName::new`].
    pub fn from_docker_reference(reference: &str) -> Result<Self, NameError> {
        let name = reference.split_once('@').map_or(reference, |(name, _)| name);
        let last_name = name.rfind('/').map_or(0, |slash| slash + 1);
        let name = match name[last_name..].find(':') {
            // A colon in the only component would be a port, but a host alone is no repository.
            Some(colon) => &name[..last_name + colon],
            None => name,
        };
        match name.split_once('/') {
            Some((host, repository)) if is_host(host) => Self::new(host, repository),
            Some(_) => Self::new(DOCKER_HUB, name),
            None => Self::new(DOCKER_HUB, &format!("library/{name}")),
        }
    }

    /// The normalized text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `prefix` names this repository, or a host or leading part of it, in whole components.
    pub(super) fn is_under(&self, prefix: &str) -> bool {
        match self.0.strip_prefix(prefix) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the first component of a reference is a host (the rule of Docker's reference grammar).
fn is_host(component: &str) -> bool {
    component.eq_ignore_ascii_case("localhost")
        || component.contains(['.', ':'])
        || component.starts_with('[')
}

/// One form for each host; also for the host part of prefixes and patterns.
fn normalize_host(host: &str) -> String {
    // Only while what is left still reads as a host: `registry/app`, without the port, is a name at Docker Hub.
    fn shorter(host: &str) -> Option<&str> {
        let rest = host.strip_suffix(":443").or_else(|| host.strip_suffix('.'))?;
        is_host(rest).then_some(rest)
    }
    let host = host.to_ascii_lowercase();
    let mut host = host.as_str();
    while let Some(rest) = shorter(host) {
        host = rest;
    }
    registry_name(host).to_owned()
}

/// Why a pattern or prefix in `trust.toml` is not usable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PatternError {
    /// Nothing there, or an empty component.
    #[error("{0:?} is empty or has an empty component; write it like \"registry.example.com/team/**\"")]
    Empty(String),
    /// Longer than any name.
    #[error("a pattern of {0} bytes is longer than 512")]
    TooLong(usize),
    /// `**` beside other characters.
    #[error("in {0:?}, \"**\" must stand alone between slashes")]
    DoubleStar(String),
    /// A scheme, blank, tag or digest, none of which a repository name has.
    #[error("{0:?} is not a host and repository; leave out any \"https://\", tag, digest and blank")]
    NotAName(String),
    /// A wildcard in a prefix.
    #[error("{0:?} is a prefix, which needs and knows no \"*\": it covers everything below it")]
    Wildcard(String),
}

/// A pattern over `host/repository`: `*` stands for anything within one component, `**` for any number of
/// components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    components: Vec<String>,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let components = components_of(text)?;
        if components.iter().any(|part| part != "**" && part.contains("**")) {
            return Err(PatternError::DoubleStar(text.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            components,
        })
    }

    /// Whether the pattern covers `name`.
    pub fn covers(&self, name: &RepositoryName) -> bool {
        let names: Vec<&str> = name.as_str().split('/').collect();
        // reached[i]: the components so far can stand for the first i names. Two rows, so hostile patterns
        // cost no more than components times names.
        let mut reached = vec![false; names.len() + 1];
        reached[0] = true;
        for component in &self.components {
            let mut next = vec![false; names.len() + 1];
            if component == "**" {
                let mut any = false;
                for (now, before) in next.iter_mut().zip(&reached) {
                    any |= *before;
                    *now = any;
                }
            } else {
                let rows = next.iter_mut().skip(1).zip(&reached).zip(&names);
                for ((now, before), name) in rows {
                    *now = *before && component_matches(component.as_bytes(), name.as_bytes());
                }
            }
            reached = next;
        }
        reached.last().copied().unwrap_or(false)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads a prefix for [`RepositoryName::is_under`] and normalizes its host.
pub(super) fn parse_prefix(text: &str) -> Result<String, PatternError> {
    if text.contains('*') {
        return Err(PatternError::Wildcard(text.to_owned()));
    }
    Ok(components_of(text)?.join("/"))
}

fn components_of(text: &str) -> Result<Vec<String>, PatternError> {
    if text.len() > MAX_PATTERN {
        return Err(PatternError::TooLong(text.len()));
    }
    if text.contains("://") || text.contains(['@', ' ', '\t', '\n', '\r']) {
        return Err(PatternError::NotAName(text.to_owned()));
    }
    let mut components: Vec<String> = text.split('/').map(str::to_owned).collect();
    if components.iter().any(String::is_empty) {
        return Err(PatternError::Empty(text.to_owned()));
    }
    if components.iter().skip(1).any(|part| part.contains(':')) {
        return Err(PatternError::NotAName(text.to_owned()));
    }
    if let Some(host) = components.first_mut() {
        *host = normalize_host(host);
    }
    Ok(components)
}

/// Whether `name` fits `pattern`, in which `*` stands for any bytes. Greedy with one point to come back to,
/// so the time is at most the product of the lengths.
fn component_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(byte) if name.get(n) == Some(byte) => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    retry = Some((after_star, from + 1));
                    p = after_star;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .is_some_and(|rest| rest.iter().all(|&b| b == b'*'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xebec_format::docker_hub::DOCKER_HUB_NAMES;

    use super::*;

    #[test]
    fn one_form_for_each_name() {
        for (host, want) in [
            ("Registry.Example.com", "registry.example.com/a"),
            ("registry.example.com:443", "registry.example.com/a"),
            ("registry.example.com.", "registry.example.com/a"),
            ("registry.example.com:5000", "registry.example.com:5000/a"),
            ("index.docker.io", "docker.io/a"),
            ("[::1]:5000", "[::1]:5000/a"),
            ("registry:443", "registry:443/a"),
            ("registry.", "registry./a"),
            ("registry.example.com.:443.", "registry.example.com/a"),
        ] {
            assert_eq!(RepositoryName::new(host, "a").unwrap().as_str(), want);
        }
        for (reference, want) in [
            ("index.docker.io/library/nginx", "docker.io/library/nginx"),
            ("nginx:1.29", "docker.io/library/nginx"),
            ("team/app", "docker.io/team/app"),
            ("localhost:5000/app:v1", "localhost:5000/app"),
            ("localhost/app@sha256:00", "localhost/app"),
            ("[::1]:5000/app:v1@sha256:00", "[::1]:5000/app"),
        ] {
            assert_eq!(
                RepositoryName::from_docker_reference(reference).unwrap().as_str(),
                want
            );
        }
    }

    #[test]
    fn all_names_of_docker_hub_are_one() {
        for name in DOCKER_HUB_NAMES {
            assert_eq!(
                RepositoryName::new(name, "library/nginx").unwrap().as_str(),
                "docker.io/library/nginx",
                "{name}"
            );
            let pattern = Pattern::parse(&format!("{name}/library/*")).unwrap();
            assert!(pattern.covers(&RepositoryName::new("docker.io", "library/nginx").unwrap()));
        }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for reference in [
            "registry:443/team/app",
            "registry./app",
            "a../b",
            "]i./]i",
            "nginx",
        ] {
            let name = RepositoryName::from_docker_reference(reference).unwrap();
            assert_eq!(
                RepositoryName::from_docker_reference(name.as_str()).unwrap(),
                name
            );
        }
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for (host, repository) in [
            ("", "a"),
            ("r", ""),
            ("r", "a//b"),
            ("r", "../a"),
            ("r/a", "b"),
            ("r", "a:tag"),
            ("r", "a@b"),
            ("r ", "a"),
            ("r", "a*"),
        ] {
            assert!(
                RepositoryName::new(host, repository).is_err(),
                "{host:?} {repository:?}"
            );
        }
        assert!(RepositoryName::new("r", &"a".repeat(511)).is_err());
        assert!(RepositoryName::from_docker_reference("").is_err());
    }

    #[test]
    fn patterns_cover_what_they_say() {
        let covers = |pattern: &str, host: &str, repository: &str| {
            Pattern::parse(pattern)
                .unwrap()
                .covers(&RepositoryName::new(host, repository).unwrap())
        };
        assert!(covers("r.example.com/**", "r.example.com", "a/b/c"));
        assert!(covers("r.example.com/team/*", "r.example.com", "team/a"));
        assert!(!covers("r.example.com/team/*", "r.example.com", "team/a/b"));
        assert!(!covers("r.example.com/team/*", "r.example.com", "teams/a"));
        assert!(covers("r.example.com/**/prod", "r.example.com", "prod"));
        assert!(covers("r.example.com/**/prod", "r.example.com", "a/b/prod"));
        assert!(!covers("r.example.com/**/prod", "r.example.com", "a/prod/b"));
        assert!(covers("*.example.com/**", "r.example.com:443", "a"));
        assert!(!covers("*.example.com/**", "r.example.com.evil.org", "a"));
        assert!(covers("**", "anything", "at/all"));
        assert!(covers("R.example.com/app-*-x", "r.EXAMPLE.com", "app-1-2-x"));
        assert!(!covers("r.example.com/app", "r.example.com", "app2"));
        assert!(covers("index.docker.io/library/*", "docker.io", "library/nginx"));
    }

    #[test]
    fn bad_patterns_are_named() {
        for text in [
            "",
            "/",
            "a//b",
            "a/",
            "https://a/b",
            "a/b:tag",
            "a/b@sha256:00",
            "a/ b",
            "a/x**",
            "***/b",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text:?}");
        }
        assert!(Pattern::parse(&"a".repeat(513)).is_err());
        assert!(parse_prefix("a/*").is_err());
        assert!(!RepositoryName::new("r", "team2/a").unwrap().is_under("r/team"));
        assert!(RepositoryName::new("r", "team/a").unwrap().is_under("r/team"));
        assert!(RepositoryName::new("r", "team").unwrap().is_under("r/team"));
    }

    /// The obvious recursive matcher.
    fn model(pattern: &[&str], names: &[&str]) -> bool {
        match (pattern.split_first(), names.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), None) => model(rest, names),
            (Some((&"**", rest)), Some((_, later))) => model(rest, names) || model(pattern, later),
            (Some((first, rest)), Some((name, later))) => {
                component_model(first.as_bytes(), name.as_bytes()) && model(rest, later)
            }
            _ => false,
        }
    }

    fn component_model(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), None) => component_model(rest, name),
            (Some((b'*', rest)), Some((_, later))) => {
                component_model(rest, name) || component_model(pattern, later)
            }
            (Some((p, rest)), Some((n, later))) => p == n && component_model(rest, later),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matches_like_the_obvious_matcher(
            pattern in proptest::collection::vec("(\\*\\*|[ab]?\\*?[ab]?\\*?[ab]{1,2})", 1..5),
            names in proptest::collection::vec("[ab]{1,4}", 2..5),
        ) {
            let parsed = Pattern::parse(&pattern.join("/"));
            prop_assume!(parsed.is_ok());
            let name = RepositoryName::new(&names[0], &names[1..].join("/")).unwrap();
            let pattern: Vec<&str> = pattern.iter().map(String::as_str).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(parsed.unwrap().covers(&name), model(&pattern, &names));
        }
    }
}
