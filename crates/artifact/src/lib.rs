//! The artifact that lists the indexes of an image's layers, as hosts and registries make it.
//!
//! * [`artifact`]: the manifest, its media types and annotations; written and read.
//! * [`made`]: from what the indexer made of a layer to what the artifact lists.
//! * [`own_table`]: layers that need no index.
//!
//! Promise: the same image gives the same artifact, byte for byte, whichever program makes it: `xebec index --push` or a registry.
//!
//! May use: `format`, `index`, `oci`, `trust`. No network and no files: callers fetch, keep and push.

pub mod artifact;
pub mod made;
pub mod own_table;
