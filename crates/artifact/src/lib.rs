//! The artifact that lists the indexes of an image's layers, as hosts and registries make it.
//!
<<<<<<< HEAD
//! * [`artifact`]: the manifest, its media types and annotations; written and read.
=======
//! * [`artifact`]: the manifest that lists indexes, its media types and annotations; written and read.
//! * [`carried`]: what is in either, as a registry reads it that answers starts.
>>>>>>> 583bbc9c (Answer a start in one request, since the registry knows what the host would ask for next)
//! * [`made`]: from what the indexer made of a layer to what the artifact lists.
//! * [`own_table`]: layers that need no index.
//!
//! Promise: the same image gives the same artifact, byte for byte, whichever program makes it: `xebec index --push` or a registry.
//!
//! May use: `format`, `index`, `oci`, `trust`. No network and no files: callers fetch, keep and push.

pub mod artifact;
pub mod carried;
pub mod made;
pub mod own_table;
