//! A registry whose images are lazy by themselves: the OCI distribution API over a store of blobs and manifests.
//!
//! * [`auth`]: who asks, and what they may do.
//! * [`events`]: what happened, for those who are told of it.
//! * [`audit`], [`webhooks`]: what was done by whom, written down and told to others.
//! * [`upstream`]: images of other registries, fetched when they are asked for.
//! * [`indexing`]: each layer's index, made when the layer has come.
//! * [`page`]: what is here, for people.

pub mod audit;
pub mod auth;
pub mod events;
pub mod indexing;
pub mod page;
pub mod upstream;
pub mod webhooks;
