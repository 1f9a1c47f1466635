//! Refusals and failures of a store. Each message names the thing, the cause and the next step.

use std::io;
use std::path::PathBuf;

use xebec_kernel::size::for_people;

use crate::database::DatabaseError;
use crate::name::{RepositoryName, Tag, UploadId};
use xebec_objects::Digest;
use xebec_placement::PlaceName;

/// A result of the store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The metadata database.
    #[error("cannot {doing} in the metadata database: {source}")]
    Database {
        /// The action that failed.
        doing: &'static str,
        /// Why it was not.
        source: DatabaseError,
    },
    /// The object store.
    #[error(
        "cannot {doing} (object {key}): {source}; see that the object store answers and has room, then try again"
    )]
    Object {
        /// The action that failed.
        doing: &'static str,
        /// The object's key.
        key: String,
        /// Why it was not.
        source: io::Error,
    },
    /// A place with replicas.
    #[error("the place {place} cannot be used: {source}")]
    Place {
        /// Its name in the configuration.
        place: PlaceName,
        /// Why it was not, and what to do.
        source: io::Error,
    },
    /// A place that was not asked, since it could not be used a short while ago.
    #[error("the place {0} could not be used, and is asked again after a pause")]
    Paused(PlaceName),
    /// The root directory, or the object store as a whole, when it is opened.
    #[error("cannot open {what}: {source}; see that it exists and that this user may write there")]
    Open {
        /// The thing that was to be opened.
        what: String,
        /// Why it was not.
        source: io::Error,
    },
    /// The kernel gave no random bytes, or a task was ended.
    #[error("cannot {doing}: {source}; try again")]
    System {
        /// The action that failed.
        doing: &'static str,
        /// Why it was not.
        source: io::Error,
    },
    /// A blob whose record is here and whose object is not.
    #[error("blob {0} has a record and no object; push it again, or restore it from a backup")]
    Lost(Digest),
    /// A blob that is not intact, in a program that cannot make its bytes again.
    #[error("blob {0} is kept as a recipe, which this program cannot carry out; read it by `xebec-registry`")]
    NoRestorer(Digest),
    /// No such upload in this repository, or none any more.
    #[error(
        "upload {id} of {repository} is unknown: it was finished, cancelled, or given up after its time; begin another"
    )]
    UnknownUpload {
        /// The repository.
        repository: RepositoryName,
        /// The upload.
        id: UploadId,
    },
    /// The repository has as many uploads under way as it may have.
    #[error(
        "{repository} has {most} unfinished uploads, which is the most; finish or cancel some, or wait until they are given up"
    )]
    TooManyUploads {
        /// The repository.
        repository: RepositoryName,
        /// How many it may have.
        most: u32,
    },
    /// Another request continues this upload.
    #[error("upload {0} is being continued by another request; wait for its end")]
    Busy(UploadId),
    /// The bytes that were sent are not those of the digest that was named.
    #[error(
        "the bytes that were sent have digest {found}, not {wanted}; nothing of them is kept, send them again"
    )]
    DigestMismatch {
        /// The digest that the client named.
        wanted: Digest,
        /// The digest of the bytes that it sent.
        found: Digest,
    },
    /// A manifest names what its repository lacks.
    #[error(
        "the manifest names what {repository} lacks: {}; push it first, then the manifest again",
        list(missing)
    )]
    MissingReferences {
        /// The repository.
        repository: RepositoryName,
        /// The blobs and manifests that are missing.
        missing: Vec<Digest>,
    },
    /// A tag that neither moves nor goes names another manifest, or leads to a manifest or blob that was to go.
    #[error("tag {tag} of {repository} names {digest} and may neither move nor go; push by another tag")]
    ImmutableTag {
        /// The repository.
        repository: RepositoryName,
        /// The tag.
        tag: Tag,
        /// The manifest that it names.
        digest: Digest,
    },
    /// A manifest of more bytes than are taken.
    #[error("the manifest has {size} bytes, and {limit} are taken at most; move its data into layers")]
    ManifestTooLarge {
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// No room, but for the reserve.
    #[error(
        "{} are free where this registry keeps its data, and {} of that stay free, so that it still can delete; delete images, or give \
         the disk more room",
        for_people(*free),
        for_people(*reserve)
    )]
    Full {
        /// So many bytes are free.
        free: u64,
        /// So many stay free.
        reserve: u64,
    },
    /// A file of a backup, or of what is restored.
    #[error("cannot {doing} {path}: {source}")]
    File {
        /// The action that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
    /// A backup that lacks objects, or has wrong ones.
    #[error(
        "the backup is not whole: {}; nothing was restored, take another backup",
        list(damaged)
    )]
    BadBackup {
        /// The blobs and manifests whose bytes are missing or wrong.
        damaged: Vec<Digest>,
    },
    /// The store's engines cannot do the request.
    #[error("{0}")]
    Unsupported(String),
}

/// Why an object is not where it is to be: a failure for each place that failed, in the order in which they were asked.
#[derive(Debug)]
pub struct Unplaced {
    /// The one that a user is told.
    pub first: StoreError,
    /// Those on other places.
    pub others: Vec<StoreError>,
}

impl Unplaced {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &StoreError> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Adds what failed after something else did.
    pub fn after(self, before: Option<Self>) -> Self {
        let Some(mut before) = before else {
            return self;
        };
        before.others.push(self.first);
        before.others.extend(self.others);
        before
    }
}

impl From<StoreError> for Unplaced {
    fn from(first: StoreError) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }
}

impl From<Unplaced> for StoreError {
    fn from(unplaced: Unplaced) -> Self {
        unplaced.first
    }
}

fn list(digests: &[Digest]) -> String {
    let shown: Vec<String> = digests.iter().take(8).map(Digest::to_string).collect();
    match digests.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Why bytes were not added to an upload.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// No such upload in this repository, or none any more.
    #[error(
        "upload {id} of {repository} is unknown: it was finished, cancelled, or given up after its time; begin another"
    )]
    Unknown {
        /// The repository.
        repository: RepositoryName,
        /// The upload.
        id: UploadId,
    },
    /// The bytes do not follow those that are here.
    #[error("the upload goes on at byte {at}; send the bytes from there")]
    WrongOffset {
        /// Where it goes on.
        at: u64,
    },
    /// Another request continues this upload.
    #[error(
        "upload {0} is being continued by another request; wait for its end, ask how far it is, and go on from there"
    )]
    Busy(UploadId),
    /// The body broke off. The bytes before that are kept.
    #[error("the body broke off: {0}; ask how far the upload is, and go on from there")]
    Body(io::Error),
    /// More bytes than a blob may have.
    #[error("a blob may have {limit} bytes at most")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The store itself.
    #[error(transparent)]
    Store(#[from] StoreError),
}
