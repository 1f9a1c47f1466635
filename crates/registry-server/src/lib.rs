//! A registry whose images are lazy by themselves: the OCI distribution API over a store of blobs and manifests.
//!
//! * [`server`]: connections, TLS, limits, the end; [`api`]: from a request to its answer.
//! * [`route`], [`request`]: what requests say, read without I/O; [`error`]: what they are told when they are refused.
//! * [`state`]: what all requests share; [`config`]: what an operator may set; [`metrics`]: figures.
//! * [`mode_file`]: whether anything may be written now; `origin`: whether a browser asks for another site.
//! * [`upkeep`]: what the rules let go is deleted, before each collection.
//! * [`copies`]: copies of blobs are where the rules of the configuration want them.
//! * [`deduplication`]: each file is kept once: blobs are taken apart in the background, and restored when they are asked for.
//! * `starts`: what starts share: recordings and lists of indexes that were read, and turns.
//! * [`watchers`]: hosts that are told what changes in a repository.
//! * [`page`]: what is here, for people.
//!
//! `xebec-access` decides which caller asks and what they may do; `xebec-policy` decides what stays, what goes and how much there may be.
//! Images of other registries come through `xebec-upstream`, or by `xebec-transfer` for good. `xebec-store` keeps everything; `xebec-dedup`
//! has it keep each file once, and `xebec-assembly` puts layers together of such files. `xebec-indexing` makes each layer's index.
//! `xebec-events` tells the audit log and webhooks what happened.
//!
//! Promises: rights are checked before anything is looked up; a push is answered after its bytes and its record are on the disk; no
//! request waits for indexing, for a collection or for a listener.
//!
//! May use: the crates above, and `requests`, `recipe`, `format`, `artifact`, `native`, `oci`, `trust`, `settings`, `placement`, `kernel`. No crate of a host.

pub mod api;
pub mod body;
pub mod config;
pub mod copies;
pub mod deduplication;
pub mod error;
mod figures;
pub mod memory;
pub mod metrics;
pub mod mode_file;
mod origin;
pub mod page;
pub mod server;
mod starts;
pub mod state;
pub mod upkeep;
pub mod watchers;

pub use xebec_requests::{request, route};
