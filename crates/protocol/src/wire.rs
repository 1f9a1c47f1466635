//! The messages between the command line and the daemon: JSON, one value a line, over a Unix socket.
//!
//! The command line sends one [`Request`] and reads [`Reply`] values until one of them is final. A process that may
//! open the socket (its directory belongs to root) may mount images, so nothing here is a secret or a check.

mod cache;
mod holder;
pub(crate) mod loaded;
mod status;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use cache::{CacheReport, CachedLayerInfo, Collected, CollectedLayer, Forgotten};
pub use holder::{Holder, LayerPair, users};
pub use loaded::Loaded;
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

/// How an image is named and reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRequest {
    /// The reference as the user wrote it.
    pub reference: String,
    /// `os/architecture[/variant]`; the host's when absent.
    pub platform: Option<String>,
    /// The user's docker `config.json`, for credentials.
    pub docker_config: Option<PathBuf>,
    /// When the registry resolves the reference, and when this host does.
    #[serde(default)]
    pub pull: PullPolicy,
    /// Of this manifest, and of it only the lower layers, wherever the reference leads now.
    #[serde(default)]
    pub part: Option<ImagePart>,
    /// This manifest, which an earlier start found by the reference, wherever that leads now. A registry is asked only if this
    /// host does not know the manifest.
    #[serde(default)]
    pub manifest: Option<Digest>,
}

/// When the registry is asked which image a reference means. The contents of files come from it whenever they are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    /// At each start, since a tag may have moved; the image that this host knows serves when the registry is away.
    #[default]
    Always,
    /// When this host knows no image by that reference and for that platform.
    Missing,
    /// Never: an image that this host does not know is not found.
    Never,
}

/// The lower layers of an image, as containerd keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePart {
    /// The manifest.
    pub manifest: Digest,
    /// How many layers, from the lowest; all of them if it has fewer.
    pub layers: u32,
}

/// Whether and how the rest of an image is brought in in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The fetch is paced so as to end after about this many seconds; as fast as can be when 0.
    pub deadline_seconds: u64,
}

/// The permissions on a directory on which an image is mounted. Views themselves have none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// Programs run as their owner if their mode says so, and with their file capabilities.
    #[serde(default)]
    pub suid: bool,
    /// Device nodes can be opened.
    #[serde(default)]
    pub dev: bool,
}

/// The purpose of a view's mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Purpose {
    /// To look at the image's files.
    #[default]
    Files,
    /// To start a service. The pages of its runtime image are brought in first, if there is one.
    Service(ServiceCommand),
    /// To record the pages that a service touches: the view is nobody else's, nothing of it is in any page cache, and reading it
    /// asks for each page by itself.
    Recording,
}

/// The user's part of the command of the service that is started; the rest is in the image's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCommand {
    /// Replaces the image's entrypoint.
    pub entrypoint: Option<Vec<String>>,
    /// Replaces the image's command if not empty.
    pub command: Vec<String>,
    /// Variables that were given.
    pub env: Vec<(String, String)>,
    /// Whether there is a probe that tells when it is ready.
    #[serde(default)]
    pub has_probe: bool,
    /// Keep a profile of its reads until then.
    #[serde(default)]
    pub learn: bool,
    /// The command is said later, and may be another one of the image.
    #[serde(default)]
    pub is_said_later: bool,
}

/// A request of the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Make an image's view and mount it.
    Mount {
        /// The image.
        image: ImageRequest,
        /// The holder of the mount.
        holder: Holder,
        /// Refuse when a layer would have to be read whole first.
        require_lazy: bool,
        /// Bring the rest in, in the background.
        completion: Option<Completion>,
        /// Whether the image is mounted for its files, for a service, or for a recording.
        #[serde(default)]
        purpose: Purpose,
        /// The permissions on the directory, if one holds it.
        #[serde(default)]
        allowed: Allowed,
        /// Tell the image's configuration as soon as it is known, or the one that this host got when it last asked.
        #[serde(default)]
        wants_configuration: bool,
    },
    /// A start is over. Answered once all that is to be known of it is.
    StartOver {
        /// The holder of the view.
        holder: Holder,
        /// The container, if it came to one.
        container: Option<String>,
        /// When its probe was seen, in milliseconds since 1970; absent when it ended without.
        ready_ms: Option<u64>,
        /// The ids of the image's own user by its lists, for the next start.
        #[serde(default)]
        user: Option<Identity>,
    },
    /// Give a view back.
    Release {
        /// Which view, or any when absent.
        view: Option<String>,
        /// The holder that had it.
        holder: Holder,
    },
    /// Make an image known and, if asked, bring all of it in before answering.
    Pull {
        /// The image.
        image: ImageRequest,
        /// Bring everything in.
        complete: bool,
    },
    /// Compare complete layers with their digests, and so turn other roots of trust into *proven*.
    Prove {
        /// The image.
        image: ImageRequest,
    },
    /// The layers in the cache, their users, and which of them may be evicted.
    Cache,
    /// Evict layers that are not in use, down to a size.
    Collect {
        /// How much the cache may have afterwards, in bytes; the limit that is set when absent.
        target: Option<u64>,
        /// Print what would be evicted, and evict nothing.
        dry_run: bool,
    },
    /// Keep an image's layers whatever the limit is, or no more.
    Pin {
        /// The image.
        image: ImageRequest,
        /// Keep them.
        pinned: bool,
    },
    /// Forget an image and remove the layers that no other image refers to.
    Forget {
        /// The image.
        image: ImageRequest,
        /// Even if there are containers of it that do not run.
        #[serde(default)]
        force: bool,
    },
    /// Forget the logins and tokens that are remembered, and read the files of logins again.
    ForgetLogins,
    /// The status of the daemon.
    Status,
    /// The waits of readers, and the reasons.
    Explain {
        /// A container, a view, an image.
        name: String,
    },
    /// The report on a start.
    ExplainStart {
        /// A container or an image; the last start of all when absent.
        name: Option<String>,
    },
    /// The metrics, as Prometheus gets them.
    Metrics,
    /// The result of loading a runtime image for the last start on a view. Answered once loading is over.
    Loaded {
        /// The view, by its name.
        view: String,
    },
    /// The files and pages of a view that were touched since it was mounted.
    Touched {
        /// The view, by its name.
        view: String,
    },
    /// Stop the daemon.
    Stop {
        /// Unmount views that are in use, too.
        force: bool,
    },
}

impl Request {
    /// Whether an image's layers are to be served for it.
    pub fn wants_image(&self) -> bool {
        matches!(self, Self::Mount { .. } | Self::Pull { .. } | Self::Prove { .. })
    }

    /// Whether the client wants this reply before the final one.
    pub fn wants(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (
                Self::Mount {
                    wants_configuration, ..
                },
                Reply::Configuration { .. },
            ) => *wants_configuration,
            (_, Reply::Configuration { .. }) => false,
            _ => true,
        }
    }
}

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
