//! Everything that the worker opens before it makes services.

use std::sync::Arc;

use xebec_fill::fill_service::FillService;
use xebec_images::images::Images;
use xebec_kernel::journal::Journal;
use xebec_protocol::settings::Settings;
use xebec_recordings::recordings::Recordings;
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::Views;

/// The things that are open before there are services: the state on disk, the served layers, and the keeper's descriptors.
pub(crate) struct Opened {
    pub(crate) images: Images,
    pub(crate) recordings: Recordings,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) settings: Settings,
}

impl Opened {
    /// How many bytes the cache may have, if it is limited.
    pub(crate) fn cache_limit(&self) -> Option<u64> {
        self.settings.cache_size.map(|size| size.0)
    }
}
