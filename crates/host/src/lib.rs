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

pub mod ctr_pull;
pub mod logins;
pub mod relay;
pub mod worker;

pub use xebec_format::PAGE_SIZE;
