//! The report on one start of a service, as the daemon tells it and `xebec explain --start` shows it.

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

use crate::wire::loaded::Loaded;

/// One start, from its mount until it was ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartReport {
    /// The image as it was named, in full.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// The service: its command line.
    pub command: Vec<String>,
    /// The container, if it came to one.
    pub container: Option<String>,
    /// The random part of the name of that container's control group, which tells it from others of its name.
    #[serde(default)]
    pub container_run: Option<String>,
    /// When the view was mounted, as RFC 3339 has it.
    #[serde(default)]
    pub began: String,
    /// The same in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it was watched from then on, in milliseconds.
    pub watched_ms: u64,
    /// The reason why it is over.
    pub end: StartEnd,
    /// The result of loading its runtime image; `None` when there was no recording of this service.
    pub loaded: Option<Loaded>,
    /// The use of the pages of its recording, if one was used.
    pub recorded: Option<RecordedPages>,
    /// Pages outside of the recording that were not there when it began.
    pub missed_pages: u64,
    /// Pages outside of the recording that were asked for and were there. Complete layers are not asked about.
    pub local_pages: u64,
    /// Reads that had to wait.
    pub waits: u64,
    /// How long they waited in all, in milliseconds. Several that wait at a time count each.
    pub waited_ms: f64,
    /// The files whose pages outside of the recording were not there, those with the most pages first.
    pub missed_files: Vec<MissedFile>,
    /// How many more files there are.
    pub more_files: u64,
    /// Whether pages that were only read ahead are among those that were asked for.
    pub with_read_ahead: bool,
    /// Whether others used the view, so that pages that they read count as touched, and those that they had read
    /// before were not asked for again.
    pub shared: bool,
    /// Whether more was asked for than is remembered, or could be looked at.
    pub truncated: bool,
    /// The fate of the profile, if one was to be kept.
    pub learned: Option<Learned>,
    /// The advice to the user, if there is something to be gained.
    pub advice: Option<String>,
    /// How many earlier starts of the same subject are remembered.
    #[serde(default)]
    pub earlier: u64,
}

impl StartReport {
    /// Whether it is of a container, by its name or as `NAME@RUN`, or of an image, by its reference in full or its manifest.
    pub fn is_of(&self, name: &str, reference: Option<&str>) -> bool {
        let is_container = |container: &str| {
            let run = self.container_run.as_deref().unwrap_or_default();
            let rest = name.strip_prefix(container);
            rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('@') == Some(run))
        };
        self.container.as_deref().is_some_and(is_container)
            || self.manifest.to_string() == name
            || Some(self.reference.as_str()) == reference
    }
}

/// How a start came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartEnd {
    /// Its probe was seen.
    Ready,
    /// The container ended, or was given up.
    Ended,
    /// It went on for longer than is watched.
    Limit,
}

/// The pages of a recording in one start, by how they came and whether they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPages {
    /// How many it names.
    pub pages: u64,
    /// Were there before.
    pub present: u64,
    /// Came by the recording.
    pub fetched: u64,
    /// Were neither, and came when they were read.
    pub late: u64,
    /// The size of the sample, if the other pages were prefilled: the sample tells how many of those were read. The numbers of
    /// pages that were read and that were not are estimates then.
    #[serde(default)]
    pub sample: Option<u64>,
    /// Were read.
    pub touched: u64,
    /// Were not read.
    pub unused: u64,
    /// Came by the recording and were not read.
    pub fetched_unused: u64,
    /// Could not be looked for: the view has them elsewhere, or its files could not be opened.
    pub unknown: u64,
}

/// A file of which pages outside of the recording were not there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissedFile {
    /// Its path in the image.
    pub path: String,
    /// The number of these pages.
    pub pages: u64,
    /// How long readers waited for it, in milliseconds.
    pub waited_ms: f64,
}

/// The fate of a start's profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Learned {
    /// It is kept, for `xebec record --merge`.
    Kept {
        /// Pages that the recording lacks.
        missed: u64,
        /// Pages of the recording that were read, if that could be seen.
        touched: Option<u64>,
    },
    /// It is not, and why.
    Not(String),
}
