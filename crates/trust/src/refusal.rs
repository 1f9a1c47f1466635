//! Tells a user why no root of trust suffices: what is missing, and each way to get it.

use std::fmt;

use serde::Serialize;

use super::Naming;
use super::file::RegistryRoot;

/// The rule of `trust.toml` that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) registry_root: RegistryRoot,
    /// The entry that it is from; `None` for the default at the top of the file.
    pub(super) prefix: Option<String>,
}

/// The kind of thing that may not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Subject {
    /// The index of a layer.
    #[default]
    Index,
    /// A recording of a service.
    Recording,
}

/// An index or a recording that may not be used for an image, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(transparent)]
pub struct Refusal(pub(super) Box<Details>);

/// Apart, so that a result with a [`Refusal`] stays small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Details {
    /// The kind of thing that is refused.
    pub(super) subject: Subject,
    /// The image's registry and repository, normalized.
    pub(super) image: String,
    /// How the user named it.
    pub(super) naming: Naming,
    /// Whether the registry, at least, listed the index.
    pub(super) in_registry: bool,
    /// Why the index is known to be wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disproved: Option<String>,
    /// Why signatures that are there do not count.
    pub(super) ignored_signatures: Vec<String>,
    /// The keys that would count.
    pub(super) trusted_keys: Vec<String>,
    #[serde(skip)]
    pub(super) rule: Rule,
}

impl Refusal {
    /// The same refusal, of a recording.
    #[must_use]
    pub(super) fn of_recording(mut self) -> Self {
        self.0.subject = Subject::Recording;
        self
    }

    /// Whether the index was found to be wrong, which is an alarm and not a matter of policy.
    pub fn is_alarm(&self) -> bool {
        self.0.disproved.is_some()
    }
}

impl Details {
    fn fmt_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { image, naming, .. } = self;
        let what = match self.subject {
            Subject::Index => "the index",
            Subject::Recording => "the recording",
        };
        if !self.in_registry {
            let proven = match self.subject {
                Subject::Index => "not bound, not signed and not proven",
                Subject::Recording => "not signed, and this host did not make it",
            };
            write!(f, "nothing vouches for {what} of {image}: it is {proven}")?;
        } else if *naming == Naming::Digest {
            write!(
                f,
                "{what} of {image} was only found in the registry, where any user who may push could have put it; \
                 that never suffices for an image named by digest"
            )?;
        } else {
            write!(
                f,
                "{what} of {image} was only found in the registry, and trust.toml says that this never suffices "
            )?;
            match &self.rule.prefix {
                Some(prefix) => write!(f, "for {prefix}")?,
                None => write!(f, "by default")?,
            }
        }
        for ignored in &self.ignored_signatures {
            write!(f, "\n  a signature does not count: {ignored}")?;
        }
        Ok(())
    }

    fn fmt_remedies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::Index => self.fmt_remedies_of_index(f)?,
            Subject::Recording => self.fmt_remedies_of_recording(f)?,
        }
        if self.naming == Naming::Tag && self.in_registry && self.rule.registry_root == RegistryRoot::Never {
            write!(f, "\nor allow registry-root = \"tag\" for it in trust.toml")?;
        }
        Ok(())
    }

    fn fmt_remedies_of_index(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = &self.image;
        write!(f, "\nmake it one of:")?;
        // The simplest first, where the user's rule lets it suffice.
        if !self.in_registry && self.naming == Naming::Tag && self.rule.registry_root == RegistryRoot::Tag {
            write!(
                f,
                "\n  listed  `xebec index --push {image}…` has the registry list it, which suffices for images named by tag"
            )?;
        }
        write!(
            f,
            "\n  proven  `xebec check --prove {image}…` reads the whole layers once, on this host, and compares"
        )?;
        write!(
            f,
            "\n  signed  `xebec index --sign KEY {image}…`, by a key that trust.toml lists for it "
        )?;
        self.fmt_keys(f)?;
        write!(
            f,
            "\n  bound   `xebec index --bind {image}…` makes an image index that names image and index; use its tag \
             or digest"
        )
    }

    fn fmt_remedies_of_recording(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = &self.image;
        write!(f, "\neither of these helps:")?;
        write!(
            f,
            "\n  signed  `xebec record --sign KEY {image}…` records and pushes it anew, signed by a key that trust.toml lists \
             for it "
        )?;
        self.fmt_keys(f)?;
        write!(
            f,
            "\n  own     `xebec record {image}…` makes a recording that this host keeps for itself"
        )
    }

    fn fmt_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.trusted_keys.is_empty() {
            true => write!(f, "(none yet: add a [[key]])"),
            false => write!(f, "(now: {})", self.trusted_keys.join(", ")),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &*self.0;
        if let Some(why) = &details.disproved {
            return write!(
                f,
                "ALARM: the index of {} shows other contents than its layer ({why}); it is not used, by no name. \
                 The user who pushed it was mistaken or lied: remove it from the registry, and make a new one with \
                 `xebec index {}…`",
                details.image, details.image
            );
        }
        details.fmt_reason(f)?;
        details.fmt_remedies(f)
    }
}
