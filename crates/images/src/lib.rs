//! From a reference to layers that can be mounted: this crate resolves the image, finds an index for each layer that the policy
//! admits, and knows from where the layers' bytes can be fetched.
//!
//! * [`images`]: the images of one installation, on which every other module works.
//! * [`found_image`], [`prepared_layer`]: an image that was resolved, and a layer whose index is admitted; [`prepare`]: from one to
//!   the other.
//! * `resolve`: reference → manifest and configuration, from the registry or, when it is down, from a [`record`]; [`referrers`]: the
//!   artifacts that the registry lists beside the image; [`in_advance`]: all of that by one request, where the registry is one of Xebec.
//! * [`choose`]: for each layer the first index that is admitted: one used before, one that is in the cache, the blob's own table of
//!   contents, one that is offered, the image's index artifact (`xebec_artifact`). [`signatures`] vouch for artifacts, [`facts`] are
//!   this host's facts about an index, `budget` bounds the memory of indexes, `index_cache` has those that are decoded.
//! * `streaming`: a layer that has none of these is read whole and indexed while it streams in; [`lazy`] says why.
//! * [`admission`]: which layers of an image could be lazy, without making any so.
//! * [`background_write`]: writes a start's notes while the start goes on; `deferred_sync`: syncs them to the disk after it.
//! * [`publish`]: indexes go to the registry as an artifact that refers to the image. [`embedded_config`]: the image's configuration
//!   inside an artifact's manifest.
//! * [`commit`]: what a container changed becomes an image that is kept on this host; [`push`] brings it to a registry, with its indexes,
//!   and `native_push` only what the registry lacks of a layer.
//! * [`clients`]: the registry clients; `registry_memory`: facts that earlier processes learned about registries.
//! * [`origin`]: where fills get bytes from; `whole_blob_download` helps with registries that ignore ranges.
//! * [`outages`]: tells the caller for which registry the request waits.
//! * [`inventory`], [`known_images`], [`check`], [`proof`]: what is known and cached, and whether its bytes are right.
//!   [`lookup`] finds an image by its name, or by the beginning of its digest; [`needed`]: which containers need one.
//!
//! Promises: every chosen index is admitted by the policy for the image as the user named it. A layer of another repository is used
//! only if the image's own repository shows that it has the layer. Everything that a registry sends has a limit.
//!
//! May use: `format`, `index`, `native`, `oci`, `artifact`, `cache`, `kernel`, `trust`, `protocol`, `container` for
//! configurations of images, `commit` for those that are made here, and `assembly` and `recipe` for layers that are pushed in parts. It knows no recordings: the crate `recordings` offers indexes and configurations from them.

pub mod admission;
pub mod background_write;
mod budget;
pub mod check;
pub mod choose;
pub mod clients;
pub mod commit;
mod deferred_sync;
pub mod embedded_config;
pub mod facts;
pub mod found_image;
pub mod images;
pub mod in_advance;
mod index_cache;
pub mod inventory;
pub mod known_images;
pub mod lazy;
pub mod lookup;
mod native_push;
pub mod needed;
pub mod origin;
pub mod outages;
pub mod prepare;
pub mod prepared_layer;
pub mod proof;
pub mod publish;
pub mod push;
pub mod record;
pub mod referrers;
pub mod registry_failure;
mod registry_memory;
mod resolve;
pub mod signatures;
mod streaming;
mod sync;
pub mod thread_priority;
mod whole_blob_download;
