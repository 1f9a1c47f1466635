//! What the registry's rules removed, and by which rule.

/// What goes, or would go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Where.
    pub repository: String,
    /// What.
    pub what: Thing,
    /// The manifest that the tag names, or the first of those that go.
    pub digest: String,
    /// Why, for people.
    pub why: String,
}

/// What goes.
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
