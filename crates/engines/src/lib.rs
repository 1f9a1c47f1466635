//! Services for container engines beside the snapshotter, which each of them needs in its own way.
//!
//! | module | engine | what it does |
//! | --- | --- | --- |
//! | [`ctr_pull`] | `ctr` of containerd | pulls an image lazily where the client does not say which image it pulls |
//! | [`relay`] | Docker Engine | stands between Docker and containerd, and fetches blobs of lazy layers when Docker asks for them |
//! | [`logins`] | the kubelet | keeps the logins of its pulls, so that the daemon reads the layers later with them |
//!
//! # Promises
//!
//! * A file in the place of the relay's link or socket is replaced only if it is a link or a dead socket.
//! * Logins are in a file that only root reads, and are forgotten after the time that the settings say.
//!
//! # Crates that it may use
//!
//! `snapshotter`, which speaks with containerd, and `images`, with the crates below it. It knows neither views nor the worker.

pub mod ctr_pull;
pub mod logins;
pub mod relay;
