//! The recordings of one installation: those that this host keeps, what starts asked for beyond them, and the images that they
//! are of.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use xebec_format::digest::Digest;
use xebec_images::images::Images;
use xebec_kernel::keyed_lock::KeyedLock;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use crate::profile::Profiles;
use crate::recording_store::KeptRecordings;

/// First starts of one image at the same moment: what all of them lack is fetched by one of them.
///
/// The start that finds that the zone of a recording must be asked for takes the recording's turn, and keeps it until the indexes are
/// kept and the pages are known to be in flight. A later start finds both. The key is a recording and the image's name: starts by other
/// names may not admit what this one does.
pub(crate) type Starts = KeyedLock<(Digest, String)>;

/// The recordings of one installation, and its images.
#[derive(Clone)]
pub struct Recordings {
    pub(crate) images: Images,
    pub(crate) kept: KeptRecordings,
    pub(crate) profiles: Profiles,
    pub(crate) starts: Arc<Starts>,
    unsynced: Unsynced,
}

/// Recordings that were written down and are not on the disk yet: by the image's manifest and their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced(Arc<Mutex<BTreeSet<(Digest, Digest)>>>);

impl Unsynced {
    /// A recording was written.
    pub(crate) fn add(&self, manifest: Digest, name: Digest) {
        self.0.lock().insert((manifest, name));
    }
}

impl Recordings {
    /// The recordings of the installation at `paths`, of the images that `images` finds.
    pub fn new(paths: &Paths, images: Images) -> Self {
        Self {
            images,
            kept: KeptRecordings::new(paths.recordings()),
            profiles: Profiles::new(paths.recordings()),
            starts: Arc::default(),
            unsynced: Unsynced::default(),
        }
    }

    /// The recordings and images of the installation at `paths`.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub fn open(paths: &Paths) -> Result<Self, Failure> {
        Ok(Self::new(paths, Images::open(paths)?))
    }

    /// The same, but registries are asked with logins of pulls that are under way.
    pub fn trying_logins(&self) -> Self {
        Self {
            images: self.images.trying_logins(),
            ..self.clone()
        }
    }

    /// The images.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The recordings that this host keeps.
    pub fn kept(&self) -> &KeptRecordings {
        &self.kept
    }

    /// The pages that starts on this host asked for beyond their recordings.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    pub(crate) fn unsynced(&self) -> &Unsynced {
        &self.unsynced
    }

    /// Brings recordings to the disk that were written down since the last time. Blocks.
    ///
    /// # Errors
    /// The first thing that the disk does not take; it may be gone after a power cut. The rest is brought there all the same.
    pub fn sync(&self) -> Result<(), Failure> {
        let unsynced = std::mem::take(&mut *self.unsynced.0.lock()).into_iter();
        let synced = unsynced.map(|(manifest, name)| self.kept.sync(manifest, name));
        synced.fold(Ok(()), Result::and)
    }
}
