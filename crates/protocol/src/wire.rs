//! The messages between the command line and the daemon: JSON, one value a line, over a Unix socket.
//!
//! The command line sends one [`Request`] and reads [`Reply`] values until one of them is final. A process that may
//! open the socket (its directory belongs to root) may mount images, so nothing here is a secret or a check.

mod cache;
mod holder;
pub(crate) mod loaded;
mod request;
mod status;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use cache::{CacheReport, CachedLayerInfo, Collected, CollectedLayer, Forgotten};
pub use holder::{Holder, LayerPair, users};
pub use loaded::{Loaded, Prefetched, PrefetchedService};
pub use request::{
    Allowed, Completion, ImagePart, ImageRequest, Prefetch, PullPolicy, Purpose, Request, ServiceCommand,
};
use serde::{Deserialize, Serialize};
pub use status::{Counters, ProcessStatus, SnapshotStatus, Status, SuspectStatus, ViewStatus};
use xebec_container::Identity;
use xebec_format::digest::Digest;

use crate::explain::Explanation;
use crate::failure::Failure;
use crate::start_report::StartReport;

/// Longest line that either side accepts, in bytes. Image configurations are the largest part of any reply;
/// the registry client limits them to a few MiB.
pub const MAX_LINE: u64 = 16 << 20;

impl Reply {
    /// So many bytes of something are done.
    pub fn bytes(what: impl Into<String>, done: u64, total: u64) -> Self {
        Self::progress(what, done, total, Unit::Bytes)
    }

    /// So many things of some are done.
    pub fn items(what: impl Into<String>, done: u64, total: u64) -> Self {
        Self::progress(what, done, total, Unit::Items)
    }

    fn progress(what: impl Into<String>, done: u64, total: u64, unit: Unit) -> Self {
        Self::Progress {
            what: what.into(),
            done,
            total: Some(total),
            unit,
            waiting: None,
        }
    }

    /// A registry is waited for.
    pub fn waits(registry: String, waiting: Waiting) -> Self {
        Self::Progress {
            what: registry,
            done: 0,
            total: None,
            unit: Unit::Items,
            waiting: Some(waiting),
        }
    }

    /// A registry is waited for no more. Nothing of nothing is done: an older command, which draws a bar, takes it away.
    pub fn waits_no_more(registry: String) -> Self {
        Self::items(registry, 0, 0)
    }

    /// Whether nothing follows.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Progress { .. } | Self::Notice { .. } | Self::Configuration { .. }
        )
    }
}

/// An answer of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Something is under way, for people who wait. The last two fields are newer than the others: an older program leaves them out,
    /// and does not look at them.
    Progress {
        /// The action and its object, in words; or the registry that is waited for.
        what: String,
        /// The part that is done, in that unit.
        done: u64,
        /// The whole, in that unit, if known.
        total: Option<u64>,
        /// The unit of `done` and `total`.
        #[serde(default)]
        unit: Unit,
        /// The obstacle, if there is one. It is over when the same `what` comes with `total` 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiting: Option<Waiting>,
    },
    /// Something the user should know, such as that this start is not lazy.
    Notice {
        /// The message, for people.
        text: String,
    },
    /// The image's configuration, before its view is mounted. By then it may be another one, if the image's tag has moved.
    Configuration {
        /// The configuration.
        config: serde_json::Value,
        /// The ids of its user, by the record of the image.
        #[serde(default)]
        user: Option<Identity>,
    },
    /// Final: a view is mounted.
    Mounted(Box<Mounted>),
    /// Final: the image is known.
    Pulled {
        /// Its manifest.
        manifest: Digest,
        /// Bytes fetched.
        bytes: u64,
    },
    /// Final: what services of an image read at their start is here.
    Prefetched(Box<Prefetched>),
    /// Final: the proof's result for each layer.
    Proved {
        /// The results, by layer.
        layers: Vec<ProvedLayer>,
    },
    /// Final: the cache.
    Cache(Box<CacheReport>),
    /// Final: the result of an eviction, or of a dry run.
    Collected(Box<Collected>),
    /// Final: an image is forgotten.
    Forgotten(Box<Forgotten>),
    /// Final: the daemon's state.
    Status(Box<Status>),
    /// Final: why readers waited.
    Explained(Box<Explanation>),
    /// Final: the report on a start.
    Start(Box<StartReport>),
    /// Final: the result of loading a runtime image.
    Loaded {
        /// Absent when there was none.
        loaded: Option<Loaded>,
    },
    /// Final: the metrics.
    Metrics {
        /// In the OpenMetrics text format.
        text: String,
    },
    /// Final: the files and pages that were touched.
    Touched(Touched),
    /// Final: everything is unmounted, but the daemon stays for a while.
    Stays {
        /// The reason to stay, with the views and their users.
        reason: String,
    },
    /// Final: done, nothing to say.
    Done,
    /// Final: the worker makes room for another, which is to be asked the same.
    Again,
    /// Final: it did not work.
    Failed(Failure),
}

/// The unit in which progress is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    #[default]
    Bytes,
    /// Anything else.
    Items,
}

/// Why something does not go on for the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The fault, for people.
    pub why: String,
    /// Tries so far.
    pub tried: u32,
    /// The most tries, if they are counted.
    #[serde(default)]
    pub tries: Option<u32>,
    /// When the next try is due, in milliseconds from now, if that is known.
    #[serde(default)]
    pub next_ms: Option<u64>,
    /// When it is given up at the latest, in milliseconds from now, if that is known.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

/// A mounted view.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mounted {
    /// Its name.
    pub view: String,
    /// Where it is mounted, read-only.
    pub path: PathBuf,
    /// The reference in full.
    pub reference: String,
    /// The image manifest.
    pub manifest: Digest,
    /// The image's configuration, as the registry has it.
    pub config: serde_json::Value,
    /// How long each stage took, in milliseconds.
    pub stages_ms: BTreeMap<String, f64>,
    /// Whether every layer is lazy or local.
    pub lazy: bool,
    /// Its layers, in the order of its devices.
    pub layers: Vec<LayerPair>,
    /// For a recording: the mount through which its devices are read.
    pub recording: Option<PathBuf>,
    /// The directory that it was asked for shows it already; nothing was mounted.
    #[serde(default)]
    pub already: bool,
}

/// A layer that was, or was not, proven.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProvedLayer {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
    /// `None` when it agreed; else the difference, for people.
    pub problem: Option<String>,
}

/// The files and pages of a view that were touched.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Touched {
    /// Files of which at least one page was asked for.
    pub files: u64,
    /// Pages asked for, read-ahead included.
    pub pages: u64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    /// A reply in the form that older programs write and read.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(tag = "reply", rename_all = "snake_case")]
    enum OlderReply {
        Progress {
            what: String,
            done: u64,
            total: Option<u64>,
        },
    }

    #[test]
    fn older_programs_understand_progress_and_are_understood() {
        let waiting = Waiting {
            why: "no connection".to_owned(),
            tried: 2,
            tries: Some(8),
            next_ms: Some(100),
            left_ms: None,
        };
        for (reply, total) in [
            (Reply::bytes("x", 0, 7), Some(7)),
            (Reply::waits("x".to_owned(), waiting.clone()), None),
            (Reply::waits_no_more("x".to_owned()), Some(0)),
        ] {
            let text = serde_json::to_string(&reply).unwrap();
            let older: OlderReply = serde_json::from_str(&text).unwrap();
            let (what, done) = ("x".to_owned(), 0);
            assert_eq!(older, OlderReply::Progress { what, done, total });
            let back: Reply = serde_json::from_str(&serde_json::to_string(&older).unwrap()).unwrap();
            assert!(matches!(
                back,
                Reply::Progress { waiting: None, unit: Unit::Bytes, total: same, .. } if same == total
            ));
        }
        let text = serde_json::to_string(&Reply::waits("x".to_owned(), waiting.clone())).unwrap();
        let back: Reply = serde_json::from_str(&text).unwrap();
        assert!(matches!(back, Reply::Progress { waiting: Some(same), .. } if same == waiting));
    }
}
