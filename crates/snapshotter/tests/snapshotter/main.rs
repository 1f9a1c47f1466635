//! The socket as a client of gRPC meets it, with lazy images, a kubelet and a containerd that are made up; and the store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod containers;
mod fake;
mod hostile;
mod id_mapping;
mod image_service;
mod lazy;
mod snapshots;
mod store;
mod waiting;
