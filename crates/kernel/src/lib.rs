//! The only crate with unsafe code: fanotify, mounts, shared memory. It knows no images.
//!
//! * [`fanotify`]: a group that is asked before each read of a guarded file, and the answers to it.
//! * [`journal`]: the record of events that are read but not yet answered. It outlives the process that read them, so a killed
//!   worker is harmless.
//! * [`lease`]: proof that no other process has a file open.
//! * [`namespace`]: which mount namespace a process is in.
//! * [`network`]: network namespaces, and interfaces.
//! * [`mount`]: bind mounts, EROFS over files, overlayfs, and the table of mounts.
//! * [`process`]: starting a process with chosen descriptors, waiting for it, signals.
//! * [`page_cache`]: which pages of a file are in the page cache.
//! * [`mod@file`]: files that appear whole, and the removal of unfinished ones that a killed process left.
//! * [`owner`]: what root makes in the directory of another user belongs to that user.
//! * [`disk_usage`]: the size on disk of a tree that others may change.
//! * [`remove`]: removing directories, and nothing that is mounted in them.
//! * [`writeback`]: syncing many files to the disk together.
//! * [`clock`]: the time, as it is written down.
//! * [`random`]: random names.
//! * [`lock`]: locks of files and directories between processes.
//! * [`keyed_lock`]: a lock for each key, between tasks of one process.
//! * [`path`]: opening paths below a directory that is not trusted.
//! * [`memory`]: locking memory, how the allocator keeps it, and protecting a process from the out-of-memory killer.
//! * [`size`]: sizes as users write them.
//! * [`terminal`]: text of others, as it may be shown on a terminal.
//! * [`resolver`]: names of hosts to addresses.
//! * [`features`]: the features of this kernel, found by trying them.
//!
//! Promise: wherever rustix has a safe wrapper, this crate uses it; the rest is a short `unsafe` block that states its reason.
//!
//! May use: no other crate of Xebec.

pub mod clock;
pub mod disk_usage;
pub mod fanotify;
pub mod features;
pub mod file;
pub mod journal;
pub mod keyed_lock;
pub mod lease;
pub mod lock;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod network;
pub mod owner;
pub mod page_cache;
pub mod path;
pub mod process;
pub mod random;
pub mod remove;
pub mod resolver;
pub mod size;
pub mod terminal;
pub mod writeback;
