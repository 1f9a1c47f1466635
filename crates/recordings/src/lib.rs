//! Runtime images: the pages that a service reads until it is ready. A recording notes them, the registry keeps them beside the
//! image, and the next start fetches them by one request (FlacIO, FAST '25; the formats are in
//! [`xebec_format::runtime_image`]).
//!
//! * [`recordings`]: all recordings of one installation: [`recording_store`] keeps them, [`profile`] keeps what starts in production
//!   read beyond them.
//! * **A start:** [`find`] finds the recording of a service, [`prepare`] prepares the image for it; `index_from_recording` takes layer
//!   indexes from the same answer, one of several starts fetches what all of them lack. [`load`] puts the missing
//!   pages into the layers' data files; [`zone`] is a range of a zone in flight, received by `buffered_body`; [`bandwidth`] measures
//!   registries, [`local_read_ahead`] reads present pages from the disk ahead of the service.
//! * **A recording:** `recorder` notes which pages are read, [`record`] runs the service under it, [`publish`] makes the recording and
//!   its zone, keeps and pushes them, with `bundled_indexes` and pages of earlier recordings (`segment_dedup`).
//! * **A merge:** [`merge`] makes one recording of all recordings and profiles of an image, by [`merge_pages`] and `page_reads`.
//! * [`summary`], [`chart`]: the recorded services, as text and as a picture; [`inventory`]: those that this host keeps; [`earlier`]:
//!   those of other versions of an image.
//!
//! Promises: a recording is used only if the policy admits it for the image as the user named it. The pages that it brings are noted
//! before the first one is written, so that they can be checked and corrected later.
//!
//! May use: `images`, `fill`, `views` and what these use, `artifact`, `keeper` for the client of the daemon, `container` to run what is
//! recorded. It does not use `index`, `snapshotter` or `engines`.

pub mod bandwidth;
mod buffered_body;
mod bundled_indexes;
pub mod chart;
pub mod earlier;
pub mod find;
mod index_from_recording;
pub mod inventory;
pub mod load;
pub mod local_read_ahead;
pub mod merge;
pub mod merge_pages;
mod page_reads;
pub mod prepare;
pub mod profile;
pub mod publish;
pub mod record;
mod recorder;
pub mod recording_store;
pub mod recordings;
mod segment_dedup;
pub mod summary;
pub mod zone;
