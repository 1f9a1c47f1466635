//! The purpose that a view is mounted for.

use xebec_protocol::wire::{Allowed, Completion, Holder, Purpose};

/// An order to mount a view: its holder and purpose.
pub(crate) struct Order {
    pub(crate) holder: Holder,
    pub(crate) completion: Option<Completion>,
    pub(crate) purpose: Purpose,
    /// The permissions on the directory that holds it.
    pub(crate) allowed: Allowed,
    /// A profile is to be kept: nothing is read ahead at first, whether there are start-up pages or not, and pages that earlier
    /// starts read are in nobody's memory.
    pub(crate) learns: bool,
}
