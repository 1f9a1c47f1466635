//! The fill service: from a reader that waits for a missing page to the page, fetched, decoded and verified.
//!
//! * [`events`]: the worker's intake of fanotify events, through the journal that outlives it, and the answers to them.
//! * [`fill_service`]: brings the bytes of an event into its layer's data file, then answers; `layer_lookup` finds the layer of an
//!   event, [`served`] is a layer that is served, [`usage`] says which readers need it.
//! * [`inflight_pages`]: pages that another request is fetching; a reader joins that request instead of sending its own.
//! * [`waits`]: which readers wait or waited, for how long, and why; `wait_metrics` counts them, [`reading_process`] says in which
//!   container they are. [`access_log`]: the pages for which a start raised events.
//! * [`unverified_sources`]: which recordings brought pages that were not compared with their layer yet; [`correction_count`]: how
//!   often pages of a layer failed that comparison.
//! * [`page_set`]: sets of pages of layers. [`rate_limited_log`]: messages that the log gets once a minute at most.
//!
//! Promises: an event that was read is answered, by this worker or by a successor; a page is served only after its span was
//! verified; a read that cannot be served gets EIO (or ENOSPC), never zeros.
//!
//! May use: `kernel`, `cache`, `format`, `trust`, `protocol`, `keeper` for the numbers of descriptors, `container` for the name of
//! a waiting process's container, `images` for the sources of bytes. It knows neither views nor recordings.

pub mod access_log;
pub mod correction_count;
pub mod events;
pub mod fill_service;
pub mod inflight_pages;
mod layer_lookup;
pub mod page_set;
pub mod rate_limited_log;
pub mod reading_process;
pub mod served;
pub mod unverified_sources;
pub mod usage;
mod wait_metrics;
pub mod waits;
