//! Runtime images: what a service touches of its image until it is ready, recorded page by page, kept beside the image in its
//! registry, and brought in by one request before the next start (FlacIO, FAST '25; the formats are in
//! [`xebec_format::runtime_image`]).
//!
//! * [`recordings`]: all that one installation has: [`recording_store`] keeps recordings, [`profile`] what starts in production asked
//!   for beyond them.
//! * **A start:** [`find`] finds the recording of a service, [`prepare`] prepares the image for it; `index_from_recording` takes layer
//!   indexes from the same answer, `single_flight` has one of several starts fetch what all of them lack. [`load`] puts the missing
//!   pages into the layers' data files; [`zone`] is a range of a zone on its way, received by `buffered_body`; [`bandwidth`] is what is
//!   known of registries, [`local_read_ahead`] asks the disk for pages that are here.
//! * **A recording:** [`recorder`] notes which pages are read, [`record`] runs the service under it, [`publish`] makes the recording and
//!   its zone, keeps and pushes them ([`artifact`]), with [`bundled_indexes`] and pages of earlier recordings ([`segment_dedup`]).
//! * **A merge:** [`merge`] makes one recording of all that is known of an image's services, by [`merge_pages`] and `page_reads`.
//! * [`summary`], [`chart`]: what there is, for people and as a picture.
//!
//! Promises: a recording is used only if the policy admits it for the image as it was named; what it brings is noted before the
//! first page is written, so that it can be distrusted later.
//!
//! May use: everything below the daemon: `images`, `fill`, `views`, `keeper` for the client of the daemon, `container` to run what is
//! recorded.

pub mod artifact;
pub mod bandwidth;
mod buffered_body;
pub mod bundled_indexes;
pub mod chart;
pub mod find;
mod index_from_recording;
pub mod load;
pub mod local_read_ahead;
pub mod merge;
pub mod merge_pages;
mod page_reads;
pub mod prepare;
pub mod profile;
pub mod publish;
pub mod record;
pub mod recorder;
pub mod recording_store;
pub mod recordings;
pub mod segment_dedup;
mod single_flight;
pub mod summary;
pub mod zone;
