//! What requests and the work in the background share.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use xebec_fill::fill_service::FillService;
use xebec_images::images::Images;
use xebec_kernel::journal::Journal;
use xebec_protocol::failure::Failure;
use xebec_protocol::settings::Settings;
use xebec_recordings::bandwidth::Bandwidths;
use xebec_recordings::recordings::Recordings;
use xebec_views::recording_admission::RecordingAdmission;
use xebec_views::sharing::SharedContents;
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::Views;

use crate::background::{Background, run_without_turn};
use crate::eviction_locks::EvictionLocks;
use crate::loaded_images::Loadings;
use crate::snapshot_service::Snapshots;
use crate::start_table::Starts;

/// What requests and the work in the background share.
pub struct Services {
    pub(crate) images: Images,
    pub(crate) recordings: Recordings,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) suspects: Suspects,
    pub(crate) shared: Arc<SharedContents>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) settings: Settings,
    pub(crate) eviction: EvictionLocks,
    pub(crate) bandwidths: Arc<Bandwidths>,
    pub(crate) recording_admission: Arc<RecordingAdmission>,
    pub(crate) starts: Starts,
    pub(crate) loadings: Loadings,
    pub(crate) background: Background,
    /// Views that were mounted, by name, with their metadata, which is not on the disk yet.
    pub(crate) unsynced_views: Mutex<Vec<(String, PathBuf)>>,
    /// Held while corrections of pages are counted.
    pub(crate) corrections: Mutex<()>,
    pub(crate) stop: tokio::sync::Notify,
    /// Nothing needs this daemon any more, and nothing may come to.
    pub(crate) ended: AtomicBool,
    /// Tells conversations that another worker will answer.
    pub(crate) hand_over: tokio::sync::Notify,
    /// What containerd is served by, if it is.
    pub(crate) snapshots: Snapshots,
}

impl Services {
    /// Does what takes long or blocks, in a thread for that.
    pub(super) async fn in_background<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let this = self.clone();
        self.background.run(move || work(&this)).await
    }

    /// The same for what the daemon does of itself, which waits for no request.
    pub(super) async fn without_turn<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let this = self.clone();
        run_without_turn(move || work(&this)).await
    }
}
