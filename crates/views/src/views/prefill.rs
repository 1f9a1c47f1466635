//! Prefilled pages: what was put into the page cache of views' files before a process read it.

use std::sync::Arc;

use parking_lot::Mutex;
use xebec_fill::page_set::PageSet;

/// Pages of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefilled {
    /// These were brought, whether or not somebody reads them.
    pub brought: PageSet,
    /// The sample of them that was left out.
    pub left_out: PageSet,
}

/// A worker's note of a mounted view. It tells that mount from a later one of the same name.
#[derive(Clone, Debug, Default)]
pub struct PrefillNote(pub(super) Arc<Mutex<Prefilled>>);
