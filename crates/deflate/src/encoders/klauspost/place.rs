//! Places between blocks, as the parts of the encoder tell them to each other.

/// The state of a matcher: small numbers whose meaning is the matcher's own.
pub(super) type Numbers = [u64; 7];

/// A place between two blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// How many plain bytes come before it.
    pub(super) plain: u64,
    /// The state of the matcher there; `None` if the matcher cannot be resumed there.
    pub(super) matcher: Option<Numbers>,
}
