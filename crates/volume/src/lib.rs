//! The mounts of a container: directories and files of the host (`--volume`, `--mount`), volumes, and memory (`--tmpfs`).
//!
//! A *volume* is a directory that Xebec keeps for containers, by its name, and that outlives them:
//!
//! ```text
//! <root>/volumes/<name>/_data         what containers see
//!                       volume.json   when it was made, and its labels
//!                       _new          the image's files, while they are copied
//!                .new-<digits>        a volume that is being made
//!                .gone-<digits>       a volume that is being removed
//! ```
//!
//! [`Volume`], [`Mount`] and [`Tmpfs`] are the requests of a user. [`ContainerVolumes`] plans the mounts of one container before its
//! image is known, makes missing directories when it is, and compares the container's mounts with the plan. `xebec volume` works on
//! a [`VolumeStore`].
//!
//! # Promises
//!
//! * Files that containers wrote to a volume are never followed as links, and nothing outside the volume is removed
//!   with it.
//! * A new volume shows the files that the image has in its place, all of them or none: they are copied aside,
//!   synced, and renamed.
//! * A volume is not removed while a container uses it, also one that has ended and was kept.
//! * Before a container's command runs, each mount is compared with what was opened for it on the host.
//!
//! # Crates that it may use
//!
//! `kernel`, and no other crate of Xebec. It knows no containers: it is given the directories of all, in each of which it keeps one
//! file (`volumes.json`), and asks its caller which of them run ([`Place`]).
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | `request` | a mount as it is asked for; `text` and `options` read `--volume`, `mount_option` and `csv` read `--mount` |
//! | `tmpfs`, `targets` | directories in memory; two mounts at one place |
//! | `container_volumes` | the mounts of one container; `bind` writes one for the runtime |
//! | `store`, `paths` | the volumes there are, and their names |
//! | `usage` | which container uses which volume |
//! | `fill`, `copy` | what the image has in a volume's place |
//! | `relabel` | labels of SELinux |
//! | `levels` | going down a tree, for both |
//!
//! `xebec cp` copies trees as well, by the crate `copy`, and by other rules, so there are two. Into a volume everything is copied as
//! it is, devices, sockets and attributes among it, from an image that does not change, into a directory that nobody uses yet; half
//! a copy is thrown away. `xebec cp` copies between trees that containers use meanwhile: it makes no device and keeps no attribute,
//! drops bits, replaces what is there one file at a time, and a half of it stays. They have only the loop in common.

mod bind;
mod container_volumes;
mod copy;
mod csv;
mod error;
mod fill;
mod levels;
mod mount_option;
mod options;
mod paths;
mod relabel;
mod request;
mod store;
mod targets;
mod text;
mod tmpfs;
mod usage;

pub use self::bind::BindMount;
pub use self::container_volumes::{ContainerVolumes, Place};
pub use self::error::VolumeError;
pub use self::mount_option::Mount;
pub use self::request::{Propagation, Relabel, Source, Submounts, Volume};
pub use self::store::{VolumeInfo, VolumeStore};
pub use self::targets::check_targets;
pub use self::tmpfs::Tmpfs;
pub use self::usage::{anonymous_of, volumes_of};

#[cfg(test)]
mod tests;
