//! References, manifests, and the registry client.
//!
//! * [`Reference`], [`Repository`]: what a user types to name an image, of the crate `format`.
//! * [`manifest`], [`media_type`], [`image_config`]: what registries answer with, parsed within limits.
//! * [`client`]: the [`Client`]: resolve, range reads, streams, referrers, push.
//! * [`config`]: what a user may set about registries.
//! * [`credentials`], [`auth`]: how Xebec logs in to registries, by the credentials that docker's users already have.
//! * [`fuzzing`]: entry points for fuzz targets.
//! * `error`: one error type that names registry, repository, object, cause, and what to do.
//!
//! Promises: this crate checks everything that a registry sends: manifests and configs against their digests, ranges against
//! the request. Bytes of a *range* carry no digest of their own; the reader of spans verifies them. Credentials go only to the
//! registry that they are for, and to its token server.
//!
//! May use: `format`, `kernel`, and `native` for the messages by which a registry of Xebec answers a start in advance and takes layers.

pub mod auth;
pub mod client;
pub mod config;
pub mod credentials;
mod error;
pub mod fuzzing;
pub mod image_config;
pub mod manifest;
pub mod media_type;
pub mod memory;
mod transport;

pub use client::{
    BlobSource, BlobStream, BlobUpload, Change, Client, FetchedManifest, Listener, LocatedImage, NativePush,
    NativeService, NoAnswers, NoPush, NoWatch, Observer, Outage, PiecesInAdvance, ProbeReport,
    PushedManifest, RangeAnswer, ResolvedImage, Stats, Uploads, Wait, Watch, listening,
};
pub use config::{Budget, ClientConfig, DurationError, Mirror, RegistrySettings, parse_duration};
pub use error::{ClientError, Fault, Target};
pub use image_config::ImageConfig;
pub use manifest::{Descriptor, ImageManifest, Index, Manifest};
pub use transport::http::read_authorities;
pub use xebec_format::platform::Platform;
use xebec_format::reference;
pub use xebec_format::reference::{Reference, Repository};
