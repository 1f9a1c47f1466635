//! Runtime images: what a service touches of its image until it is ready, recorded page by page, kept beside the image
//! in its registry, and brought in by one request before the next start (FlacIO, FAST '25; the formats are in
//! [`xebec_format::runtime_image`]).
//!
//! * [`recorder`]: notes which pages are read, in order, through a mount of the cache that is the recording's own.
//! * [`record`]: runs the service on a view of its own, once or several times, under a recorder.
//! * [`publish`]: what was touched becomes a recording and its zone, which are kept here and pushed.
//! * [`artifact`]: the OCI artifact that they are.
//! * [`carry`]: the layer indexes that travel with the pages.
//! * [`kept`]: the recordings that this host has, and what vouches for each.
//! * [`recordings`]: all that one installation has.
//! * [`find`]: the recording by which a service is started; [`prepare`]: the image for that start; `single_flight`: of starts at
//!   the same moment one fetches what all of them lack; `index_from_recording`: layer indexes that come in the same answer.
//! * [`merge`]: one recording of all that is known of an image's services, by [`fold`] and `bring`.
//! * [`injected`]: who brought pages that nobody compared yet.
//! * [`profile`]: what starts in production asked for beyond their recordings.
//! * [`reuse`]: segments of earlier recordings that a new one goes on using.
//! * [`summary`]: what there is, for people.
//! * [`chart`]: one of them with the names of files, for a picture.
//! * [`corrected`]: how often pages of a layer turned out wrong, so that no later view is one that has them in memory.
//! * [`zone`]: a range of its zone on its way, which goes on being received (`receiving`) while nobody takes of it.
//! * [`ahead`]: pages that are here, but not in memory, are asked for from the disk.
//! * [`load`]: its missing pages come by one request and are put into the layers' data files.

pub mod ahead;
pub mod artifact;
mod bring;
pub mod carry;
pub mod chart;
pub mod find;
pub mod fold;
mod index_from_recording;
pub mod kept;
pub mod load;
pub mod merge;
pub mod pace;
pub mod prepare;
pub mod profile;
pub mod publish;
mod receiving;
pub mod record;
pub mod recorder;
pub mod recordings;
pub mod reuse;
mod single_flight;
pub mod summary;
pub mod zone;
