//! The values that a store takes and gives.

use std::collections::BTreeMap;

use bytes::Bytes;

use xebec_names::{RepositoryName, Tag};
use xebec_objects::Digest;

/// A blob that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Its digest.
    pub digest: Digest,
    /// How many bytes it has.
    pub size: u64,
    /// The key of the object that has its bytes; none if the blob is not intact, but kept as a recipe.
    pub object: Option<String>,
}

/// The kind of content that a reference leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReferenceKind {
    /// An image's configuration: a blob.
    Config,
    /// A layer, or any other blob.
    Layer,
    /// A manifest that an index lists.
    Manifest,
}

impl ReferenceKind {
    /// Its name in the records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Layer => "layer",
            Self::Manifest => "manifest",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Config, Self::Layer, Self::Manifest];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// A reference of a manifest to a blob or manifest. A subject is none: it may be absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// The kind of content that it leads to.
    pub kind: ReferenceKind,
    /// The digest of that content.
    pub digest: Digest,
    /// Whether the manifest is refused while this is absent. A layer that clients fetch elsewhere need not be here.
    pub required: bool,
}

/// A manifest that is pushed, and what its caller has read in it.
#[derive(Clone, Debug)]
pub struct NewManifest {
    /// The digest of `content`, which the store computes again.
    pub digest: Digest,
    /// As the client called it.
    pub media_type: String,
    /// The bytes, as they came.
    pub content: Bytes,
    /// The blobs and manifests that it names.
    pub references: Vec<Reference>,
    /// The manifest that it refers to.
    pub subject: Option<Digest>,
    /// Its artifact type, or its configuration's media type, as referrers list it.
    pub artifact_type: Option<String>,
    /// As referrers list them.
    pub annotations: BTreeMap<String, String>,
    /// Of the tags that are to name it, those that may not be moved: if one names another manifest, nothing is written.
    pub immutable: Vec<Tag>,
    /// Whether a client pushed it. Otherwise it came from an upstream, or the registry made it, and the registry can get it again.
    pub is_pushed: bool,
}

/// The changes that a push of a manifest made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutManifest {
    /// The repository had no such manifest.
    pub is_new: bool,
    /// Tags that named another manifest, or did not exist, and what they named.
    pub moved: Vec<(Tag, Option<Digest>)>,
}

/// Which tags of a repository neither move nor go. It is asked inside of the transaction that would change something.
pub type IsHeld = Box<dyn Fn(&Tag) -> bool + Send>;

/// A manifest that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Its digest.
    pub digest: Digest,
    /// As the client called it.
    pub media_type: String,
    /// The bytes, as they came.
    pub content: Bytes,
    /// The manifest that it refers to.
    pub subject: Option<Digest>,
    /// As referrers list it.
    pub artifact_type: Option<String>,
    /// When it was pushed to this repository first, in milliseconds since 1970.
    pub created: u64,
    /// When it was pulled last, as far as was noted; 0: never.
    pub pulled: u64,
}

/// A manifest that was read with a limit on its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestWithin {
    /// It has no more bytes than that.
    Whole(Manifest),
    /// It has more, so many, and was not read.
    Larger(u64),
}

/// A manifest without its bytes, as listings have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrer {
    /// Its digest.
    pub digest: Digest,
    /// As the client called it.
    pub media_type: String,
    /// How many bytes it has.
    pub size: u64,
    /// Its artifact type, or its configuration's media type.
    pub artifact_type: Option<String>,
    /// Its annotations; none where a list was made without them.
    pub annotations: BTreeMap<String, String>,
    /// The manifest that it refers to.
    pub subject: Option<Digest>,
    /// When it was pushed to this repository first, in milliseconds since 1970.
    pub created: u64,
    /// When it was pulled last, as far as was noted; 0: never.
    pub pulled: u64,
}

/// A tag, and the manifest that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRecord {
    /// The tag.
    pub name: Tag,
    /// The manifest.
    pub digest: Digest,
    /// When the tag was pushed first, in milliseconds since 1970.
    pub created: u64,
    /// When it was set last: here, or where it came from, as far as that is known.
    pub updated: u64,
    /// When it was pulled last, as far as was noted; 0: never.
    pub pulled: u64,
}

/// Repositories that were chosen from a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Them, in order.
    pub items: Vec<RepositoryName>,
    /// After which name the list goes on, if it does. That need not be one of them.
    pub next: Option<RepositoryName>,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// In the order of their bytes.
    pub items: Vec<T>,
    /// Whether there are more after the last of them.
    pub next: bool,
}

impl<T> Page<T> {
    /// Of one more than was asked for, if there are as many.
    pub fn cut(mut items: Vec<T>, n: usize) -> Self {
        let next = items.len() > n;
        items.truncate(n);
        Self { items, next }
    }
}

/// The room that repositories take up. Content that several of them share counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of distinct blobs and manifests.
    pub bytes: u64,
    /// Distinct blobs.
    pub blobs: u64,
    /// Distinct manifests.
    pub manifests: u64,
    /// Bytes of uploads that nobody has finished yet. Each counts by itself.
    pub uploads: u64,
}

/// A manifest whose layers are to be indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexingTask {
    /// Where it is.
    pub repository: RepositoryName,
    /// Its digest.
    pub manifest: Digest,
    /// How often it was taken, this time included.
    pub tries: u64,
}

/// A manifest that could not be indexed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexingProblem {
    /// Where it is.
    pub repository: RepositoryName,
    /// Its digest.
    pub manifest: Digest,
    /// For people.
    pub problem: String,
}

/// The outcome of indexing a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerOutcome {
    /// There is an index; where, the indexer knows by this text.
    Made(String),
    /// There can be none; why, for people.
    Problem(String),
}

/// A manifest of a repository, with what decides whether it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its digest.
    pub digest: Digest,
    /// How many bytes it has.
    pub size: u64,
    /// The manifest that it refers to.
    pub subject: Option<Digest>,
    /// When it came to this repository first, in milliseconds since 1970.
    pub created: u64,
    /// When a client pushed it last; 0: it came from an upstream, or the registry made it.
    pub pushed: u64,
    /// When it was pulled last, as far as was noted; 0: never.
    pub pulled: u64,
    /// The manifests that it lists.
    pub children: Vec<Digest>,
    /// The blobs that it names and the repository has, and their sizes.
    pub blobs: Vec<(Digest, u64)>,
}

/// Manifests of a repository that are to go, if this still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Those that go together.
    pub manifests: Vec<Digest>,
    /// Nobody has pushed or pulled one of them after this time, in milliseconds since 1970.
    pub since: u64,
    /// They are copies of an upstream's: their tags go with them, and one that a client has pushed is none. Otherwise, no tag names
    /// them, or what they refer to.
    pub is_copy: bool,
}
