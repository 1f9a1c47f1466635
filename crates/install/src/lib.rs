//! Changes that `xebec install` makes on a host, and how `--uninstall` undoes them.
//!
//! * [`plan`]: the steps, found before any of them is carried out, so that they can be shown instead.
//! * `keys`: sets and restores single keys of a user's TOML file, and changes nothing else in it.
//! * `containerd`: which keys containerd needs, by the version of its configuration.
//! * [`docker`]: Docker Engine, if that is wanted.
//! * `record`: what was changed, for `xebec install --uninstall`.
//!
//! Promises: a second installation changes nothing; the removal leaves and names what the user changed since; what is changed is on record
//! before it is changed.
//!
//! May use: `engines` for names of sockets, `keeper` for the client of the daemon, `protocol`, `format`, `kernel`.

mod containerd;
pub mod docker;
mod keys;
pub mod plan;
mod record;

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
