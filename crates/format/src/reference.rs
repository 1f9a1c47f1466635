//! The name that a user types for an image: `[host[:port]/]path[:tag][@digest]`.
//!
//! Grammar and defaults are those of the `reference` package of CNCF distribution: a first component that could not be a host belongs
//! to the path, the registry is then `docker.io`, and a single name there means `library/name`. A parsed [`Reference`] prints in full,
//! and what it prints parses to itself.

mod error;
mod grammar;

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;
use crate::docker_hub::{DOCKER_HUB, registry_name};
use serde::{Deserialize, Serialize};

pub use error::ReferenceError;
pub use grammar::split_host_port;
use grammar::{check_name, check_registry, check_tag, is_host};

/// The registry that is meant when a reference names none.
pub const DEFAULT_REGISTRY: &str = DOCKER_HUB;
/// The tag that is meant when a reference has neither tag nor digest.
pub const DEFAULT_TAG: &str = "latest";
/// Longest host and path together, in bytes (distribution's `NameTotalLengthMax`).
pub const MAX_NAME_LENGTH: usize = 255;

/// A repository in a registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository {
    registry: String,
    name: String,
}

/// The name of an image: a repository, and a tag or a digest or both in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    repository: Repository,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Repository {
    /// The repository `name` of `registry`, both checked. Names of hosts are the same in upper and lower case (RFC 4343); here they
    /// are in lower case.
    ///
    /// # Errors
    /// If either does not follow the grammar of the distribution specification.
    pub fn new(registry: &str, name: &str) -> Result<Self, ReferenceError> {
        check_registry(registry)?;
        check_name(name)?;
        let length = registry.len() + 1 + name.len();
        if length > MAX_NAME_LENGTH {
            return Err(ReferenceError::TooLong(length));
        }
        Ok(Self {
            registry: registry.to_ascii_lowercase(),
            name: name.to_owned(),
        })
    }

    /// Host, and port if there is one: `docker.io`, `localhost:5000`, `[::1]:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path in the registry, for example `library/nginx`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The reference to `digest` in this repository.
    pub fn at(&self, digest: Digest) -> Reference {
        Reference {
            repository: self.clone(),
            tag: None,
            digest: Some(digest),
        }
    }

    /// The reference to `tag` in this repository.
    ///
    /// # Errors
    /// If `tag` does not follow the grammar.
    pub fn tagged(&self, tag: &str) -> Result<Reference, ReferenceError> {
        check_tag(tag)?;
        Ok(Reference {
            repository: self.clone(),
            tag: Some(tag.to_owned()),
            digest: None,
        })
    }
}

impl Reference {
    /// Host, and port if there is one.
    pub fn registry(&self) -> &str {
        &self.repository.registry
    }

    /// Whether a text names a registry itself, and does not leave it to the default.
    pub fn names_registry(text: &str) -> bool {
        text.split_once('/').is_some_and(|(first, _)| is_host(first))
    }

    /// Registry and path.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The tag as given.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest as given.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Whether the name fixes the content. A digest wins over a tag beside it.
    pub fn is_by_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// The name by which the registry is asked for the manifest: the digest if there is one, else the tag, else `latest`.
    pub fn manifest_name(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse()?)),
            None => (text, None),
        };
        // A colon after the last slash starts a tag; before it, a port.
        let last_slash = name.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match name.get(last_slash..).and_then(|last| last.split_once(':')) {
            Some((last, tag)) => (name.get(..last_slash + last.len()).unwrap_or(name), Some(tag)),
            None => (name, None),
        };
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        Ok(Self {
            repository: split_repository(name).map_err(|error| foreign(text).unwrap_or(error))?,
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

/// The error of a text that is no reference, if other programs (skopeo, podman, browsers) take it for the place of an image.
fn foreign(text: &str) -> Option<ReferenceError> {
    let (scheme, rest) = text.split_once(':')?;
    let text = text.to_owned();
    match scheme {
        "docker" | "http" | "https" if rest.starts_with("//") => {
            let scheme = format!("{scheme}://");
            Some(ReferenceError::Scheme { text, scheme })
        }
        "oci" | "oci-archive" | "docker-archive" | "docker-daemon" | "containers-storage" | "dir" => {
            let kind = format!("{scheme}:");
            Some(ReferenceError::Elsewhere { text, kind })
        }
        _ => None,
    }
}

/// Tells the registry from the path, with docker's defaults.
fn split_repository(name: &str) -> Result<Repository, ReferenceError> {
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => (first, rest),
        _ => (DEFAULT_REGISTRY, name),
    };
    let registry = registry_name(registry);
    if registry == DOCKER_HUB && !path.contains('/') {
        return Repository::new(registry, &format!("library/{path}"));
    }
    Repository::new(registry, path)
}

/// A host of one word, such as `MyHost`, is told from the beginning of a path by its upper case only: it is printed so.
impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_host(&self.registry) {
            true => write!(f, "{}/{}", self.registry, self.name),
            false => write!(f, "{}/{}", self.registry.to_ascii_uppercase(), self.name),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl Serialize for Reference {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker_hub::DOCKER_HUB_NAMES;
    use proptest::prelude::*;

    const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn defaults_are_dockers() {
        for (text, full) in [
            ("nginx", "docker.io/library/nginx"),
            ("nginx:1.27", "docker.io/library/nginx:1.27"),
            ("library/nginx", "docker.io/library/nginx"),
            ("index.docker.io/nginx", "docker.io/library/nginx"),
            ("foo/bar", "docker.io/foo/bar"),
            ("localhost/foo", "localhost/foo"),
            ("localhost:5000/foo:x", "localhost:5000/foo:x"),
            ("[::1]:5000/foo/bar:x", "[::1]:5000/foo/bar:x"),
            ("[2001:db8::1]/foo", "[2001:db8::1]/foo"),
            ("ghcr.io/a/b/c__d", "ghcr.io/a/b/c__d"),
            ("MyHost/foo", "MYHOST/foo"),
            ("MYHOST/foo", "MYHOST/foo"),
            ("myhost/foo", "docker.io/myhost/foo"),
            ("host:80/foo", "host:80/foo"),
            ("oci:5000/foo", "oci:5000/foo"),
            ("docker:nginx", "docker.io/library/docker:nginx"),
            ("a---b/c.d_e", "docker.io/a---b/c.d_e"),
        ] {
            assert_eq!(
                text.parse::<Reference>().map(|r| r.to_string()),
                Ok(full.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn all_names_of_docker_hub_are_one() {
        for name in DOCKER_HUB_NAMES {
            for (rest, full) in [
                ("nginx:1.27", "docker.io/library/nginx:1.27"),
                ("foo/bar", "docker.io/foo/bar"),
            ] {
                let reference: Reference = format!("{name}/{rest}").parse().unwrap();
                assert_eq!(reference.to_string(), full, "{name}");
            }
        }
    }

    #[test]
    fn a_host_is_the_same_in_upper_and_lower_case() {
        for (text, registry) in [
            ("LOCALHOST:5000/app", "localhost:5000"),
            ("LocalHost/app", "localhost"),
            ("Registry.Example.com/app", "registry.example.com"),
            ("[::FFFF]:5000/app", "[::ffff]:5000"),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.registry(), registry);
            assert_eq!(reference.to_string(), format!("{registry}/app"));
        }
    }

    #[test]
    fn a_host_of_one_word_stays_one_when_it_is_printed() {
        let [one, other] = ["MyHost/foo", "MYHOST/foo"].map(|text| text.parse::<Reference>().unwrap());
        assert_eq!(one, other);
        assert_eq!(one.registry(), "myhost");
        assert_eq!(one.to_string().parse(), Ok(one));
    }

    #[test]
    fn tag_and_digest_together() {
        let reference: Reference = format!("r.example:5000/a:v1@{DIGEST}").parse().unwrap();
        assert_eq!(reference.registry(), "r.example:5000");
        assert_eq!(reference.tag(), Some("v1"));
        assert!(reference.is_by_digest());
        assert_eq!(reference.manifest_name(), DIGEST);
        assert_eq!("nginx".parse::<Reference>().unwrap().manifest_name(), "latest");
    }

    #[test]
    fn refuses_by_name() {
        assert_eq!("".parse::<Reference>(), Err(ReferenceError::Empty));
        for (text, want) in [
            ("Nginx", "lower case"),
            ("a//b", "not a repository name"),
            ("-a/b", "not a repository name"),
            ("a/b.", "not a repository name"),
            ("a..b", "not a repository name"),
            ("a___b", "not a repository name"),
            ("r.example/", "not a repository name"),
            ("nginx:", "not a tag"),
            ("nginx:-x", "not a tag"),
            ("nginx@sha512:00", "sha256"),
            ("host:99999/a", "not a registry host"),
            ("docker://r.example/app:1", "leave docker:// out"),
            ("https://r.example/app:1", "leave https:// out"),
            ("http://r.example:5000/app", "leave http:// out"),
            ("oci:/srv/layout:1", "oci: images are not read"),
            ("oci:./layout", "oci: images are not read"),
            ("dir:/srv/image", "dir: images are not read"),
            ("scheme://r.example/app", "not a registry host"),
            ("host:x/a", "not a registry host"),
            ("[::1/a", "not a registry host"),
            ("[nonsense]:5000/a", "not a registry host"),
            ("a b", "not a repository name"),
            ("ä", "not a repository name"),
            ("a..b.example/x", "not a registry host"),
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
        let long = format!("{}:x", vec!["a"; 130].join("/"));
        assert!(matches!(
            long.parse::<Reference>(),
            Err(ReferenceError::TooLong(_))
        ));
        assert!(format!("a:{}", "t".repeat(129)).parse::<Reference>().is_err());
    }

    proptest! {
        #[test]
        fn prints_what_parses_to_itself(
            host in prop_oneof![Just(None), "[a-z]{1,8}\\.[a-z]{2,3}(:[1-9][0-9]{0,3})?".prop_map(Some),
                Just(Some("localhost:5000".to_owned())), Just(Some("[::1]:5000".to_owned()))],
            path in "[a-z0-9]{1,5}((\\.|_|__|-|--)[a-z0-9]{1,5}){0,2}(/[a-z0-9]{1,8}){0,3}",
            tag in prop::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"),
            digest in prop::option::of(any::<[u8; 32]>()),
        ) {
            // A first component with a dot is a host.
            let path = if host.is_none() { path.replace('.', "_") } else { path };
            let mut text = host.clone().map_or(String::new(), |host| host + "/") + &path;
            if let Some(tag) = &tag { text += &format!(":{tag}"); }
            let digest = digest.map(Digest::from_bytes);
            if let Some(digest) = &digest { text += &format!("@{digest}"); }
            let reference: Reference = text.parse().unwrap();
            prop_assert_eq!(reference.tag(), tag.as_deref());
            prop_assert_eq!(reference.digest(), digest);
            prop_assert_eq!(reference.registry(), host.as_deref().unwrap_or("docker.io"));
            prop_assert!(reference.repository().name().ends_with(&path));
            prop_assert_eq!(reference.to_string().parse::<Reference>().unwrap(), reference);
        }

        #[test]
        fn never_panics_and_accepts_only_what_it_can_print(text in "\\PC{0,60}|[a-z0-9:/@.\\[\\]_-]{0,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string().parse::<Reference>().unwrap(), reference);
            }
        }
    }
}
