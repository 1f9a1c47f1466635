//! What `xebec install` changes on a host, and how it is taken back.
//!
//! * [`plan`]: the steps, found before any of them is carried out, so that they can be shown instead.
//! * [`keys`]: single keys of a user's TOML file, set and taken back with all else as it was.
//! * [`containerd`]: which keys containerd needs, by the version of its configuration.
//! * [`docker`]: Docker Engine, if that is wanted.
//! * [`record`]: what was changed, for `xebec install --uninstall`.
//!
//! Installing twice changes nothing the second time. What the user changed since is left alone, and said.

pub mod containerd;
pub mod docker;
pub mod keys;
pub mod plan;
pub mod record;

mod host;
mod imports;
mod options;
mod removal;
mod root;
mod setup;
mod units;

pub use options::{CONTAINERD_CONFIG, Options, PACKAGED_PROGRAM, PROGRAM};
pub use removal::removal;
pub use setup::setup;
