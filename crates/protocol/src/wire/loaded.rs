//! The result of loading the runtime image of a service.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;
use xebec_trust::Root;

/// The result of loading a service's runtime image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// Which recording; none when the one that there is may not be used.
    pub recording: Option<Digest>,
    /// Its root of trust.
    pub root: Option<Root>,
    /// Pages that the service touches.
    pub pages: u64,
    /// Pages of them that were missing and could be brought.
    pub missing: u64,
    /// Pages of them that another start was bringing in already.
    #[serde(default)]
    pub joined: u64,
    /// Pages that were brought, others in the same segments included.
    pub injected: u64,
    /// Bytes fetched for them.
    pub bytes: u64,
    /// Requests for them.
    pub requests: u64,
    /// How long it took, in milliseconds.
    pub milliseconds: f64,
    /// The fault, if there was one; the start is then lazy as far as pages are missing.
    pub problem: Option<String>,
}

impl Loaded {
    /// That the recording that there is may not be used.
    pub fn refused(reason: String) -> Self {
        Self {
            problem: Some(reason),
            ..Self::default()
        }
    }
}

/// What was brought in of an image before a service of it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prefetched {
    /// The image's manifest.
    pub manifest: Digest,
    /// The services, the last recorded first.
    pub services: Vec<PrefetchedService>,
    /// What was asked for and is the begin of no command line of a recorded service.
    pub unrecorded: Vec<String>,
    /// Whether all of the image is here.
    pub complete: bool,
}

/// A service whose start-up pages were brought in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrefetchedService {
    /// Its command line.
    pub argv: Vec<String>,
    /// Variables that tell it from others.
    pub env: BTreeMap<String, String>,
    /// How that went.
    pub loaded: Loaded,
    /// Its recording may not be used.
    pub is_refused: bool,
}
