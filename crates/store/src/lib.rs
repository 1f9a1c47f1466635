//! The store of a registry: blobs, manifests, tags and uploads; collection, scrub and backup. It knows no HTTP.
//!
//! Bytes of blobs are *objects*, in a directory or in a bucket of S3. A blob may also be kept as a *recipe* over *packs* of *chunks*, which
//! are objects, too; another crate makes and reads these. Everything else is *records*, in SQLite or PostgreSQL. The
//! records are the truth: an object that no record names does not count, and nothing lists objects to decide anything.
//!
//! # Promises
//!
//! * Acknowledged content is durable: the object first, then the one transaction that makes it a blob.
//! * A process that is killed at any step leaves nothing half-visible, and nothing that a collection does not take.
//! * A blob that was promised to a client, by an upload, a mount or [`Store::blob`], stays for half the grace time, even if
//!   collections run meanwhile; one that a manifest names stays until the manifest goes.
//! * A blob's object goes only in a transaction that sees its proven recipe and all packs that this needs; no pack goes that a recipe needs.
//! * An upload takes three batches of 128 KiB of memory, whatever its size; a reader takes one piece of 64 KiB at a time. An upload to
//!   S3 takes a part more, which has 5 MiB, and more only beyond 5 GB; and all of them together take 80 MiB at most for parts that are on
//!   their way ahead. A pack or recipe is in memory while it is written: [`LARGEST_PIECE`] at most.
//!
//! # Crates that it may use
//!
//! `database`, `kernel`, `model`, `names`, `objects`, `sessions`, and `placement` for names of places; no other crate of Xebec.
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | `operations` | what a [`Store`] does, by subject |
//! | `records` | functions over one transaction, a file for each table |
//! | `schema` | migrations of the records, whose engines are another crate's |
//! | `watched` | answers for those who watch, which cost something and are remembered |
//! | `config`, `error` | how it is opened, and why it fails; the other values that go in and come out are in the crate `model` |

mod config;
mod error;
mod operations;
mod places;
mod records;
mod schema;
mod store;
mod watched;

use xebec_database as database;
use xebec_model::{self as model, recipes, replicas, space};
use xebec_names as name;

pub use self::config::{PlaceConfig, StoreConfig};
pub use self::error::{AppendError, Result, StoreError, Unplaced};
pub use self::operations::{
    BackedUp, CollectOptions, Collected, Damage, Lacking, LeftOut, NamedBy, Restored, ScrubOptions, Scrubbed,
};
pub use self::store::{Restore, Store};
pub use xebec_database::{
    DatabaseConfig, DatabaseError, PostgresTls, Protection, TlsWanted, database_protection,
};
pub use xebec_model::figures::{Sums, Transactions, Waiting};
pub use xebec_model::recipes::{
    ChunkDigest, DedupTask, Draft, LARGEST_PIECE, NewPack, NewRecipe, PackRecord, PackReplacement,
    RecipeRecord, Recording,
};
pub use xebec_model::replicas::{
    Held, Owner, PackStanding, Part, PlaceSpace, Placed, Postponed, Replica, Standing,
};
pub use xebec_model::space::{RepositorySpace, Space};
pub use xebec_model::{
    Blob, Chosen, Holding, IndexingProblem, IndexingTask, IsHeld, LayerOutcome, Manifest, ManifestWithin,
    NewManifest, Page, PutManifest, Reference, ReferenceKind, Referrer, TagRecord, Unused, Usage,
};
pub use xebec_names::{InvalidName, LONGEST_NAME, LONGEST_TAG, PackKey, RepositoryName, Tag, UploadId};
pub use xebec_objects::{Algorithm, BlobReader, Digest, Hasher, InvalidDigest, ObjectsConfig};
