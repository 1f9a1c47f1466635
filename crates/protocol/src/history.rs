//! The history of this host, for `xebec explain` after the daemon has ended: waits of readers, starts, and containers.
//!
//! It is in `<root>/history`, in two logs of lines of JSON (`docs/formats/history.md`). The worker appends to them in the
//! background; `xebec explain` reads them. Both are bounded: a log that is full becomes the older half, and the older half before
//! it goes. Nothing depends on them, so they are never synced, and entries that cannot be written are left out.

mod log;

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

use crate::explain::WaitReport;
use crate::start_report::StartReport;
pub use log::Log;

/// Waits of readers.
pub const WAITS: &str = "waits";
/// Starts, and containers.
pub const STARTS: &str = "starts";

/// Most bytes of each of the two files of [`WAITS`]: some 5000 waits in both.
pub const WAITS_LIMIT: u64 = 1536 << 10;
/// Most bytes of each of the two files of [`STARTS`].
pub const STARTS_LIMIT: u64 = 512 << 10;

/// A container, and the image that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRun {
    /// Its name.
    pub name: String,
    /// The random part of the name of its control group, which tells it from others of its name.
    #[serde(default)]
    pub run: Option<String>,
    /// The image as it was named, in full.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// When it was requested, in milliseconds since 1970.
    pub created_ms: u64,
}

impl ContainerRun {
    /// The container of a start, if it came to one.
    pub fn of_start(start: &StartReport) -> Option<Self> {
        Some(Self {
            name: start.container.clone()?,
            run: start.container_run.clone(),
            reference: start.reference.clone(),
            manifest: start.manifest,
            created_ms: start.began_ms,
        })
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A reader waited.
    Wait(Box<WaitReport>),
    /// A service started.
    Start(Box<StartReport>),
    /// A container ran.
    Container(ContainerRun),
}

/// All that is remembered, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Waits.
    pub waits: Vec<WaitReport>,
    /// Starts.
    pub starts: Vec<StartReport>,
    /// Containers, those of the starts among them.
    pub containers: Vec<ContainerRun>,
}

impl History {
    /// Reads the logs of the directory. Damaged or missing parts are left out.
    pub fn read(directory: &Path) -> Self {
        let mut history = Self::default();
        let entries = [WAITS, STARTS].map(|name| read_log::<Entry>(directory, name));
        for entry in entries.into_iter().flatten() {
            match entry {
                Entry::Wait(wait) => history.waits.push(*wait),
                Entry::Start(start) => history.starts.push(*start),
                Entry::Container(container) => history.containers.push(container),
            }
        }
        let of_starts = history.starts.iter().filter_map(ContainerRun::of_start);
        history.containers.extend(of_starts);
        history
    }

    /// Adds the entries that a worker has in memory. Some of them may be in the history as well: the worker's are the newer ones.
    pub fn add(
        &mut self,
        waits: impl IntoIterator<Item = WaitReport>,
        starts: impl IntoIterator<Item = StartReport>,
    ) {
        let all = std::mem::take(&mut self.waits).into_iter().chain(waits);
        let waits: BTreeMap<_, _> = all.map(|wait| (wait.identity(), wait)).collect();
        self.waits = waits.into_values().collect();
        let all = std::mem::take(&mut self.starts).into_iter().chain(starts);
        let key = |start: &StartReport| (start.began_ms, start.reference.clone(), start.container.clone());
        let starts: BTreeMap<_, _> = all.map(|start| (key(&start), start)).collect();
        self.starts = starts.into_values().collect();
    }
}

fn read_log<T: DeserializeOwned>(directory: &Path, name: &str) -> Vec<T> {
    let lines = log::read(directory, name);
    let entries = lines.iter().filter_map(|line| serde_json::from_slice(line).ok());
    entries.collect()
}
