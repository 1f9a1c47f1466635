//! Images of other registries, fetched when they are asked for, verified, and kept.
//!
//! Each upstream has a prefix: with `docker.io` as the prefix of Docker's registry, its `library/nginx` is `docker.io/library/nginx`
//! here. Fetched content is an ordinary part of the store, so it is served while the upstream is away.
//!
//! * [`settings`]: what the configuration says of an upstream; `names`: which repository here is which one there.
//! * [`manifest`]: what a manifest says, whichever program sent it.
//! * `manifests`, `referrers`: brought in whole, since they are small. A tag is compared with its upstream after a while.
//! * `blobs`, `download`, `fetch`, `spool`: a blob is fetched once for any number of clients, and each of them is sent what has come so
//!   far.
//! * [`Counts`]: counts of the questions to an upstream, and of their outcomes.
//! * `health`, `absent`, `single`: an upstream that is away, or that limits requests, is left alone; what it lacks is remembered for a
//!   short time; one question is asked once at a time.
//!
//! Promises: nothing is recorded before its digest was compared. Credentials are sent only to their upstream, and to the token server
//! that it names. Content that is here is answered without waiting for an upstream that does not answer.
//!
//! May use: `store`, `settings`, `oci` for the registry client, `format`, `kernel`.

mod absent;
mod blobs;
mod counts;
mod download;
mod error;
mod fetch;
mod health;
pub mod manifest;
mod manifests;
mod names;
mod referrers;
pub mod settings;
mod single;
mod spool;
mod upstreams;

pub use blobs::Found;
pub use counts::Counts;
pub use error::UpstreamError;
pub use manifests::Freshness;
pub use settings::UpstreamSettings;
pub use upstreams::{Immutable, Upstream, Upstreams};
