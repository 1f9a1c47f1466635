//! The result of loading the runtime image of a service.

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
