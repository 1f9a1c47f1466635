//! The services that serve containerd's lazy layers.

use std::path::PathBuf;
use std::sync::Arc;

use xebec_images::images::Images;
use xebec_protocol::settings::Unproven;
use xebec_protocol::wire::{ImagePart, ImageRequest, PullPolicy};
use xebec_recordings::bandwidth::Bandwidths;
use xebec_recordings::recordings::Recordings;
use xebec_views::views::Views;

use super::removed_images::RemovedImages;
use crate::background::Background;
use crate::ending::Ending;
use crate::load_ahead::LoadAhead;
use crate::mounts::Mounts;
use crate::preparation::Preparation;
use crate::pulls::Pulls;
use crate::view_cleanup::ViewCleanup;

/// The services for containerd's lazy layers.
pub(crate) struct LayerServices {
    pub(crate) images: Images,
    pub(crate) recordings: Recordings,
    pub(crate) bandwidths: Arc<Bandwidths>,
    pub(crate) views: Arc<Views>,
    pub(crate) preparation: Arc<Preparation>,
    pub(crate) load_ahead: Arc<LoadAhead>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) pulls: Arc<Pulls>,
    pub(crate) removed_images: Arc<RemovedImages>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) ending: Arc<Ending>,
    pub(crate) background: Background,
    /// The credentials by which registries are asked.
    pub(crate) docker_config: Option<PathBuf>,
    /// The rule for layers that nothing vouches for.
    pub(crate) unproven: Unproven,
}

impl LayerServices {
    /// Asks for an image as containerd names it.
    pub(super) fn request(&self, reference: &str, part: Option<ImagePart>) -> ImageRequest {
        ImageRequest {
            reference: reference.to_owned(),
            platform: None,
            docker_config: self.docker_config.clone(),
            pull: PullPolicy::Always,
            part,
            manifest: None,
        }
    }
}
