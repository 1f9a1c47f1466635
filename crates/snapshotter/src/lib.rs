//! containerd's snapshots service: which layers and directories a container's root file system consists of.
//!
//! containerd keeps images as chains of *snapshots* and asks a snapshotter for mounts. This one keeps an unpacked layer as a directory,
//! as overlayfs wants it. It keeps a lazy layer as a record in its store and nothing else: the view that shows the layer belongs to the
//! implementer of [`LazyImages`] (the daemon).
//!
//! * [`api`]: the messages, as containerd's clients send them. [`server`]: the socket; `service`: calls to operations
//!   and errors to gRPC's status codes.
//! * [`Snapshotter`]: the operations. [`store`]: all snapshots, in one file that survives kills and power cuts; [`record`]: one
//!   snapshot in it. [`directories`]: the directories beside it, with a reserve for a full disk.
//! * `mounts`: how a chain becomes a mount; [`usage`]: its disk space; [`filters`]: which snapshots a client wants listed.
//! * `id_mapping` and [`mapped`]: for containers in user namespaces.
//! * [`containerd`]: a client of containerd's own services.
//! * [`image_service`]: between the kubelet and containerd, for the logins of pulls.
//! * [`relay`]: between Docker Engine and containerd, for the blobs of lazy layers.
//! * [`lazy`]: what this crate needs to know of lazy images, and no more.
//!
//! Promises: a snapshot that was acknowledged survives kills and power cuts; a removal works on a full disk.
//!
//! May use: `kernel`, and no other crate of Xebec.

pub mod api;
pub mod containerd;
pub mod directories;
mod error;
pub mod filters;
mod id_mapping;
pub mod image_service;
pub mod lazy;
mod locks;
pub mod mapped;
mod mounts;
pub mod record;
pub mod relay;
mod reserve;
pub mod server;
mod service;
mod snapshotter;
pub mod store;
pub mod usage;

pub use error::{ErrorKind, SnapshotError};
pub use lazy::LazyImages;
pub use mapped::Binder;
pub use snapshotter::{Figures, Snapshotter};
