//! Each layer's index, made when a manifest that names the layer has come, so that every image is lazy by itself.
//!
//! The store keeps which manifests wait ([`xebec_store::Store::take_indexing`]), from the transaction on that records them. An
//! [`Indexer`] takes one after the other, in the background. It reads each layer once, with threads that get a processor when nobody
//! else wants it. It lists the indexes in an artifact that refers to the image, byte for byte the one of `xebec index --push`. The
//! answer to a push never waits for it.
//!
//! * [`settings`]: what the configuration says; `image`: what is to be indexed of a manifest.
//! * `predicting`: a runtime image for a new version of an image that was recorded.
//! * `surroundings`: what it asks of the registry that it is a part of, and tells it.
//! * `layer`: one layer's index; `known`: those that were made for another image; `publish`: the artifact, and its signature.
//!
//! Promises: an image that has an index artifact already keeps it and gets no other. An image that cannot be indexed is noted with its
//! reason and not tried again; one that fails for a passing reason is tried again a few times.
//!
//! May use: `store`, `upstream` for what is not here yet, `events` to hear what comes, `index`, `artifact`, `trust`, `oci`, `format`,
//! `kernel`. It knows no HTTP.

mod image;
mod indexer;
mod known;
mod layer;
mod predicting;
mod publish;
pub mod settings;
mod surroundings;

pub use indexer::Indexer;
pub use settings::IndexingSettings;
pub use surroundings::Surroundings;
