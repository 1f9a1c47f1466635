//! The artifacts that carry the indexes of an image's layers and the recordings of its services, as hosts and registries make and read them.
//!
//! * [`artifact`]: the manifest that lists indexes, its media types and annotations; written and read.
//! * [`carried`]: what is in either, as a registry reads it that answers starts.
//! * [`known`]: those that a registry has read lately.
//! * [`made`]: from what the indexer made of a layer to what the artifact lists.
//! * [`own_table`]: layers that need no index.
//! * [`recording`]: the manifest that carries a recording; written and read.
//!
//! Promise: the same image gives the same index artifact, byte for byte, whichever program makes it: `xebec index --push` or a registry.
//!
//! May use: `format`, `index`, `oci`, `trust`. No network and no files: callers fetch, keep and push.

pub mod artifact;
pub mod carried;
pub mod known;
pub mod made;
pub mod own_table;
pub mod recording;
