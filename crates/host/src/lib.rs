//! Images and views, the fill service and its keeper.
//!
//! * [`image`]: from a reference to layers with an admitted index; [`artifact`], [`signatures`] and `xebec_trust` are
//!   what it judges by, [`facts`] what it knows.
//! * [`view`]: merged and mounted; [`sharing`] lets files of one layer be read from another. `urgent` is what goes first.
//! * [`events`], [`worker`]: the daemon. [`origin`] is where fills get bytes from, [`spool`] what
//!   helps with registries that ignore ranges.
//! * [`clients`]: who speaks to registries, [`logins`] by what the kubelet pulled with.
//! * [`page_set`]: sets of pages.
//! * [`proof`], [`check`], [`inventory`]: what is cached, and whether it is right.

pub mod artifact;
pub mod check;
pub mod clients;
pub mod ctr_pull;
pub mod events;
pub mod facts;
pub mod free;
pub mod image;
pub mod inventory;
pub mod lazy;
pub mod logins;
pub mod origin;
pub mod page_set;
pub mod proof;
pub mod registry_memory;
pub mod relay;
pub mod runtime_image;
pub mod sharing;
pub mod signatures;
pub mod spool;
mod urgent;
pub mod view;
pub mod worker;

pub use xebec_format::PAGE_SIZE;
