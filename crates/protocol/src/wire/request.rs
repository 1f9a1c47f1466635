//! What a command asks of the daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use xebec_container::Identity;
use xebec_format::digest::Digest;

use super::{Holder, Reply};

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

impl ImageRequest {
    /// The image of that name, for this host's platform, without logins.
    pub fn named(reference: &str) -> Self {
        Self {
            reference: reference.to_owned(),
            platform: None,
            docker_config: None,
            pull: PullPolicy::Always,
            part: None,
            manifest: None,
        }
    }
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

/// What is brought in of an image before a service of it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prefetch {
    /// The image.
    pub image: ImageRequest,
    /// The services: those whose command lines begin with one of these. All that were recorded if there is none.
    pub services: Vec<String>,
    /// Bring all of the image in, too, before the answer.
    pub completion: Option<Completion>,
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
    /// Bring in what services of an image read at their start, before one of them is started.
    Prefetch(Prefetch),
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
        matches!(
            self,
            Self::Mount { .. } | Self::Pull { .. } | Self::Prefetch(_) | Self::Prove { .. }
        )
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
