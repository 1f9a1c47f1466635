//! Layers by the same numbers everywhere.

use xebec_cache::store::LayerKey;
use xebec_format::runtime_image::{PageRun, RecordedLayer, SeenRun, Service};

use crate::profile::Profile;

/// The places of somebody's layers among those of an image.
pub(crate) struct Numbers(Vec<u16>);

impl Numbers {
    /// `None` if one of the layers is not in the image as it is used here: pages mean nothing then.
    pub(crate) fn new(theirs: &[RecordedLayer], ours: &[RecordedLayer]) -> Option<Self> {
        let key = |layer: &RecordedLayer| LayerKey {
            layer: layer.layer,
            index: layer.index,
        };
        let same = |one: &RecordedLayer, other: &RecordedLayer| {
            (key(one), one.data_size) == (key(other), other.data_size)
        };
        let places = theirs
            .iter()
            .map(|layer| ours.iter().position(|our| same(our, layer)));
        places
            .map(|place| u16::try_from(place?).ok())
            .collect::<Option<_>>()
            .map(Self)
    }

    fn run(&self, run: PageRun) -> PageRun {
        let layer = self.0.get(usize::from(run.layer)).copied();
        PageRun {
            layer: layer.unwrap_or(run.layer),
            ..run
        }
    }

    /// A service with its pages by our numbers.
    pub(crate) fn service(&self, service: &Service) -> Service {
        let touched = service.touched.iter().map(|seen| SeenRun {
            run: self.run(seen.run),
            ..*seen
        });
        Service {
            touched: touched.collect(),
            ..service.clone()
        }
    }

    /// A profile with its pages by our numbers.
    pub(crate) fn profile(&self, profile: &Profile) -> Profile {
        let runs = |runs: &[PageRun]| runs.iter().map(|run| self.run(*run)).collect();
        Profile {
            missed: runs(&profile.missed),
            touched: profile.touched.as_deref().map(runs),
            ..profile.clone()
        }
    }
}
