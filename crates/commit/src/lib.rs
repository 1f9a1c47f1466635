//! Makes an image of what a container changed, and keeps it on this host: `xebec commit`.
//!
//! A container's changes are the upper directory of its overlay. They become one more layer on the image that the container was
//! started from. The layers of that image stay where they are; only the new layer, a configuration and a manifest are made.
//!
//! * [`make_layer`]: an upper directory becomes a layer blob. `changes` walks the directory and says what each file is,
//!   `attributes` reads extended attributes, `tar` writes entries, `measure` sums up against `limits`, `blob` compresses and hashes
//!   beside that.
//! * [`Change`]: an instruction of `--change`, and what it does to a configuration.
//! * [`make_image`]: configuration and manifest of the new image, as JSON.
//! * [`CommittedImages`]: the images that were made here, as an OCI layout below the root directory.
//! * [`KeptUploads`]: where pushes of their layers go on that were stopped.
//!
//! # Promises
//!
//! * The same upper directory gives the same bytes: entries are in the order of their bytes, and nothing of the host is in them. (The
//!   configuration has the time of the commit.)
//! * The upper directory is an attacker's. Each name is opened in its directory, which is open, and never through a link or onto another
//!   mount; only regular files are opened for their contents; names are bytes; counts, depths and sizes have limits.
//! * A layer says what the container saw, or there is an error. What a layer cannot hold is left out with a [`Note`]: sockets, names
//!   that mean deletions in a layer, and attributes that steer overlays.
//! * An image is there whole or not at all, also after a kill or a power cut. Nothing but [`CommittedImages::remove`] takes one away.
//!
//! May use: `format` and `kernel`. No network; it knows no registries, and containers only as directories.

mod attributes;
mod blob;
mod change;
mod changes;
mod committed;
mod error;
mod image;
mod limits;
mod measure;
mod tar;
mod uploads;
mod words;

pub use blob::{Compression, Layer, make_layer};
pub use change::{Change, ChangeError};
pub use changes::{Note, Skipped};
pub use committed::{Committed, CommittedImages, Removed, Staged};
pub use error::CommitError;
pub use image::{Base, ImageError, NewImage, Provenance, make_image};
pub use uploads::KeptUploads;
