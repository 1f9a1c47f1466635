//! Moves images of other registries into a store.
//!
//! * [`import`] reads the directory in which CNCF distribution keeps what it has, by copy or in place.
//! * [`Mirror`] copies repositories of a registry that runs, once or again and again.
//!
//! Promises of both:
//!
//! * They put manifests as pushes do, after what these name. So referrers work, indexing follows, and a process that is killed leaves
//!   nothing half-visible.
//! * They pass over what is here, so a second run goes on where the first one ended.
//! * They name and skip what is damaged, missing or foreign, and go on with the rest.
//!
//! May use: `store` and `settings`, `upstream` and `oci` for the registry that is copied, `format`, `kernel`. It knows no HTTP server.
//!
//! | module | what it has |
//! | --- | --- |
//! | `import` | the walk through a directory, which is not trusted: no link in it is followed |
//! | `mirror` | the copy of a repository, and what the configuration says of it |
//! | `put` | manifests and tags into the store, by the registry's rules |
//! | `tally` | what was moved, and what was skipped |

mod import;
mod mirror;
mod put;
mod tally;

pub use self::import::{ImportError, ImportOptions, Taking, import};
pub use self::mirror::{Mirror, MirrorError, MirrorSettings, MirrorSettingsError};
pub use self::put::Rules;
pub use self::tally::{Moved, Skipped, Tally};
