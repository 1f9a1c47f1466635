//! The contents of pages. The server gathers them from the store for those who may read them.

use std::sync::Arc;

use xebec_dedup::Figures as Restoring;
use xebec_store::{RepositorySpace, Space as Room};

/// Why an image starts lazily, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Laziness {
    /// All of its layers have an index, or a table of contents of their own.
    Lazy,
    /// Some layers have none yet: how many of how many.
    Partly {
        /// Layers with an index.
        indexed: usize,
        /// Layers.
        layers: usize,
    },
    /// None of its layers has an index.
    Not,
    /// It is an index of images, some of which are not lazy.
    Some {
        /// Images that are lazy.
        lazy: usize,
        /// Images that are here and were looked at.
        images: usize,
    },
    /// It is no image, or an index of which no image is here.
    DoesNotApply,
}

/// The visitor of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visitor {
    /// The name by which they have logged in.
    pub name: Option<String>,
    /// Whether they can log in by a browser.
    pub can_log_in: bool,
    /// Whether they are shown what concerns all repositories together.
    pub administers: bool,
}

/// A page of repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repositories {
    /// The text that was searched for.
    pub search: String,
    /// Their names and what is in them.
    pub rows: Vec<RepositoryRow>,
    /// The last name or place, if more follow.
    pub next: Option<String>,
}

/// One repository in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryRow {
    /// Its name.
    pub name: String,
    /// How many tags it has, at most [`super::MOST_TAGS`] counted.
    pub tags: usize,
    /// When a tag last changed, in milliseconds since 1970, if all are counted.
    pub updated_ms: Option<u64>,
}

/// A page of one repository's tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repository {
    /// The name by which clients reach this registry: `host:port`.
    pub host: String,
    /// Its name.
    pub name: String,
    /// The text that was searched for in its tags.
    pub search: String,
    /// The registry that its images come from, if they come through.
    pub upstream: Option<String>,
    /// Its tags.
    pub tags: Vec<TagRow>,
    /// The last tag, if more follow.
    pub next: Option<String>,
    /// The room that its blobs take up, unless they are too many to be added up for a page.
    pub space: Option<RepositorySpace>,
}

/// One tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRow {
    /// Its name.
    pub tag: String,
    /// The manifest that it names.
    pub digest: String,
    /// Platforms of its images: `linux/amd64`.
    pub platforms: Vec<String>,
    /// Bytes of its layers; none for an index of images.
    pub size: Option<u64>,
    /// When it last changed, in milliseconds since 1970.
    pub updated_ms: u64,
    /// Whether its image is lazy.
    pub laziness: Laziness,
}

/// A page of one manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The name by which clients reach this registry: `host:port`.
    pub host: String,
    /// The repository's name.
    pub repository: String,
    /// The manifest's digest.
    pub digest: String,
    /// Its media type.
    pub media_type: String,
    /// The registry that the repository's images come from, if they come through.
    pub upstream: Option<String>,
    /// Tags that name it, at most [`super::ROWS`].
    pub tags: Vec<String>,
    /// `linux/amd64`, of an image.
    pub platform: Option<String>,
    /// Its artifact type, if it is no image.
    pub artifact_type: Option<String>,
    /// The digest of the manifest that it refers to.
    pub subject: Option<String>,
    /// Its parts: layers, or images of an index.
    pub parts: Vec<Part>,
    /// How many more there are.
    pub more_parts: usize,
    /// Manifests that refer to it.
    pub referrers: Vec<Referrer>,
    /// Whether it is lazy.
    pub laziness: Laziness,
}

/// A layer, or an image of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its digest.
    pub digest: String,
    /// Its media type.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// A remark about it: its platform, or why it is not lazy.
    pub remark: String,
    /// Whether it is a manifest with a page of its own.
    pub is_manifest: bool,
}

/// A manifest whose subject is the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrer {
    /// Its digest.
    pub digest: String,
    /// Its artifact type.
    pub artifact_type: String,
    /// Its kind, for people: "index of layers", "recording", "signature".
    pub kind: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The page of the room that everything takes up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The room, as it was a minute ago at most.
    pub room: Arc<Room>,
    /// Whether blobs are taken apart.
    pub deduplicates: bool,
    /// How often what restoring needs was there, since this process started; none if nothing is restored here.
    pub restoring: Option<Restoring>,
}
