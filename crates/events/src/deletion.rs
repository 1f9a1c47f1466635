//! Deletions by the registry's rules, each with its rule.

/// A thing that goes, or would go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The repository that it was in.
    pub repository: String,
    /// The tag, manifest or copy that goes.
    pub what: Thing,
    /// The manifest that the tag names, or the first of those that go.
    pub digest: String,
    /// Why, for people.
    pub why: String,
}

/// The kind of thing that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A tag.
    Tag(String),
    /// A manifest without a tag.
    Manifest,
    /// An upstream's image, with these tags.
    Copy {
        /// The tags.
        tags: Vec<String>,
        /// How many manifests it has.
        manifests: usize,
    },
}
