//! When the daemon may end, and how it ends by force: a process that still reads gets the bytes or an error, never zeros.
//!
//! The group must not close while a process can read a hole. A stop by force unmounts every view, and from then on reads
//! of missing pages fail with `EIO`; the daemon ends when no process has a file of an incomplete layer open any more.
//! If a client asks for an image before that, the daemon goes on as before, unless the whole daemon was told to end
//! (SIGTERM to its keeper). The daemon asks the kernel for open files by a lease on the data file of each incomplete layer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::{info, warn};
use xebec_container::Record;
use xebec_fill::fill_service::FillService;
use xebec_fill::reading_process::Process;
use xebec_images::images::Images;
use xebec_kernel::file::is_same;
use xebec_kernel::journal::Journal;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Reply, users};
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::{ViewRecord, Views};

use crate::building::Building;
use crate::durability::Durability;
use crate::loaded_images::Loadings;
use crate::snapshot_binds::unbind_all;
use crate::stopping::Stopping;
use crate::view_cleanup::ViewCleanup;

/// How long a refused reader or a sync, which end by themselves, may take before the client that stops the daemon is told that it
/// stays.
const MOMENT: Duration = Duration::from_secs(1);
/// How many readers that wait are named.
const NAMED_READERS: usize = 5;
/// How often it is looked meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// The services that must have nothing left to do before the daemon may end.
pub(crate) struct EndingParts {
    pub(crate) images: Images,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) loadings: Arc<Loadings>,
    pub(crate) building: Arc<Building>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) stopping: Arc<Stopping>,
}

/// Ends the daemon.
pub(crate) struct Ending {
    parts: EndingParts,
    /// A client had it stopped.
    stop: Notify,
    /// Nothing needs this daemon any more, and nothing may come to.
    ended: AtomicBool,
}

impl Ending {
    /// Of a daemon that goes on.
    pub(crate) fn new(parts: EndingParts) -> Arc<Self> {
        Arc::new(Self {
            parts,
            stop: Notify::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// Returns when a client has had the daemon stopped.
    pub(crate) async fn is_stopped(&self) {
        self.stop.notified().await;
    }

    /// Whether nothing needs this daemon any more, and nothing may come to.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// `xebec daemon stop`. Blocks.
    pub(crate) fn stop(&self, force: bool) -> Result<Reply, Failure> {
        self.parts.views.sweep();
        if !force && let Some(mounted) = self.views_mounted() {
            let message = format!("{}. {}, or use --force", mounted.reason, mounted.advice);
            return Err(Failure::new(FailureKind::Usage, message));
        }
        let reason = match force {
            true => self.begin_to_end(),
            false => {
                self.parts.stopping.set(true);
                self.end_in_a_moment()
            }
        };
        match reason {
            None => {
                self.stop.notify_one();
                Ok(Reply::Done)
            }
            Some(reason) if force => Ok(Reply::Stays { reason }),
            Some(reason) => {
                self.parts.stopping.set(false);
                let message = format!("{reason}. End those processes first, or use --force");
                Err(Failure::new(FailureKind::Usage, message))
            }
        }
    }

    /// Unmounts every view, used or not, and refuses reads that come all the same. Gives the reason why the daemon stays. Blocks.
    pub(crate) fn begin_to_end(&self) -> Option<String> {
        {
            // A view that is being mounted just now goes, too; one that is mounted later takes the stop back.
            let _none = self.parts.building.stop();
            for view in self.parts.views.held() {
                warn!(
                    "told to stop: unmounts view {} of {}, which is in use",
                    view.path.display(),
                    view.reference
                );
            }
            unbind_all(self.parts.images.paths());
            self.parts.views.clear();
            self.parts.loadings.retain(|_| false);
            self.parts.stopping.set(true);
            self.parts.fills.refuse(true);
        }
        let reason = self.end_in_a_moment();
        if let Some(reason) = &reason {
            warn!(
                "told to stop, but {reason}: reads of missing pages fail with EIO, and the daemon stops \
                 after the last reader"
            );
        }
        reason
    }

    /// Whether a stop that had to wait for readers can be finished. Blocks.
    pub(crate) fn has_come_to_its_end(&self) -> bool {
        if self.parts.fills.is_refusing() {
            self.end_if_unused().is_none()
        } else if self.parts.journal.stop_requested() {
            // Told to an earlier worker, which did not come to do it.
            self.begin_to_end().is_none()
        } else {
            false
        }
    }

    /// Goes on after a stop by force that was not finished yet, because a client asks for an image. False when it is
    /// finished, so that another daemon is to be asked.
    ///
    /// # Errors
    /// When the whole daemon was told to end by a signal, which is not taken back.
    pub(crate) fn goes_on(&self) -> Result<bool, Failure> {
        if self.has_ended() {
            return Ok(false);
        }
        if self.parts.journal.stop_requested() {
            let message = "the daemon was told to end, and stays only for readers of views that are unmounted; end those \
                           processes, then try again";
            return Err(Failure::new(FailureKind::Host, message));
        }
        if self.parts.fills.is_refusing() {
            info!("a client asked for an image: the daemon goes on");
            self.parts.stopping.set(false);
            self.parts.fills.refuse(false);
        }
        Ok(true)
    }

    /// Ends, or gives the reason why not. It waits a moment for work that ends by itself, and gives up the fetches that requests
    /// wait for. Blocks.
    fn end_in_a_moment(&self) -> Option<String> {
        let deadline = Instant::now() + MOMENT;
        loop {
            // A request that is given up may begin one more fetch before it notices.
            self.parts.fills.abandon();
            let reason = self.end_if_unused();
            if reason.is_none() || Instant::now() > deadline {
                return reason;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Ends if nothing needs the daemon: no view is mounted from then on. Gives the reason why not. Blocks.
    pub(crate) fn end_if_unused(&self) -> Option<String> {
        // The slow parts are done first, so that views need not wait for them.
        if let Some(reason) = self.reason_to_stay() {
            return Some(reason);
        }
        let _none = self.parts.building.stop();
        // One that was mounted since lingers perhaps.
        let reason = self.reason_to_stay();
        self.ended.store(reason.is_none(), Ordering::Release);
        reason
    }

    fn views_mounted(&self) -> Option<Mounted> {
        // A record that cannot be read costs a name only.
        let containers = xebec_container::list(self.parts.images.paths().run());
        let containers = containers.map_or_else(|_| Vec::new(), |listed| listed.records);
        Mounted::of(&self.parts.views.held(), &containers)
    }

    fn reason_to_stay(&self) -> Option<String> {
        if let Some(mounted) = self.views_mounted() {
            return Some(mounted.reason);
        }
        self.parts.views.take_down_unused(|_| true);
        if let Some(suspect) = self.parts.suspects.status().first() {
            return Some(format!(
                "processes are still on an old view of {}",
                suspect.reference
            ));
        }
        let owed = self.parts.journal.counters().owed;
        if owed > 0 {
            let waiters = self.parts.fills.waits().now();
            return Some(readers_wait(owed, waiters.iter().map(|waiter| waiter.process())));
        }
        // A layer that this process serves is open here; other processes that have it open are found once it is not served any more.
        self.parts.durability.sync_served();
        self.parts.cleanup.forget_unused();
        let keys = match self.parts.images.store().list() {
            Ok(keys) => keys,
            Err(error) => return Some(error.to_string()),
        };
        keys.into_iter().find_map(|key| match self.parts.fills.is_open(key) {
            Ok(false) => None,
            Ok(true) if self.parts.fills.find(key).is_some() => Some(format!("{key} is being read or brought in")),
            Ok(true) => Some(format!(
                "{key} is still read through a view that was unmounted while in use, perhaps in a container"
            )),
            Err(failure) => Some(failure.to_string()),
        })
    }

    /// Whether the guarded mount shows another directory than the one that is now at its path: somebody removed the
    /// root directory under this daemon, and nothing that is written there could be read through the mount.
    pub(crate) fn root_was_replaced(&self) -> bool {
        let paths = &self.parts.images.paths();
        !is_same(&paths.guarded(), &paths.layers())
    }
}

/// Views that are mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    /// The message that names the views and their users.
    reason: String,
    /// The advice to the user: what to stop or unmount first.
    advice: String,
}

impl Mounted {
    /// The message about these views; nothing if there are none. `containers` are those of this host.
    fn of(views: &[ViewRecord], containers: &[Record]) -> Option<Self> {
        if views.is_empty() {
            return None;
        }
        let (mut names, mut running) = (Vec::new(), Vec::new());
        let mut has_others = false;
        for view in views {
            let users = users(&view.path, &view.holders, containers);
            let on_it = containers.iter().filter(|record| record.view == view.path);
            let on_it: Vec<&str> = on_it.map(|record| record.id.as_str()).collect();
            has_others |= users.len() > on_it.len();
            names.push(format!("{} ({})", view.reference, users.join(", ")));
            running.extend(on_it);
        }
        let advice = match (running.is_empty(), has_others) {
            (true, _) => "Unmount them first".to_owned(),
            (false, false) => format!("Stop the containers first (`xebec stop {}`)", running.join(" ")),
            (false, true) => format!(
                "Stop the containers (`xebec stop {}`) and unmount the others first",
                running.join(" ")
            ),
        };
        Some(Self {
            reason: format!("views are mounted: {}", names.join(", ")),
            advice,
        })
    }
}

/// The message about so many readers that wait for bytes, some of which are known by name.
fn readers_wait<'a>(count: u64, known: impl Iterator<Item = &'a Process>) -> String {
    let of = |process: &Process| match &process.container {
        Some(container) => format!(
            "{} (process {}, container {container})",
            process.comm, process.pid
        ),
        None => format!("{} (process {})", process.comm, process.pid),
    };
    // A process with several threads reads at several places.
    let names: BTreeSet<String> = known.map(of).collect();
    let mut reason = match count {
        1 => "1 reader waits for bytes".to_owned(),
        _ => format!("{count} readers wait for bytes"),
    };
    if !names.is_empty() {
        let named: Vec<&str> = names.iter().map(String::as_str).take(NAMED_READERS).collect();
        reason = format!("{reason}: {}", named.join(", "));
        if names.len() > NAMED_READERS {
            reason.push_str(", and others");
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use xebec_format::digest::Digest;

    use super::*;

    #[test]
    fn a_refused_stop_names_the_containers_to_stop() {
        let view = |path: &str, holders: serde_json::Value| -> ViewRecord {
            serde_json::from_value(json!({
                "name": "v", "path": path, "reference": "r/one:1", "manifest": Digest::of(b"one"), "layers": [],
                "holders": holders,
            }))
            .unwrap()
        };
        let container: Record = serde_json::from_value(json!({
            "id": "f1", "image": "r/one:1", "pid": null, "pid_started": null, "supervisor": 7, "supervisor_started": 1,
            "runtime": "/r", "view": "/v", "state": "/s", "rm": false, "created": 0, "command": [],
        }))
        .unwrap();
        let supervisor = json!({"kind": "process", "name": "run-7-1", "pid": 7, "start_time": 1});
        let directory = json!({"kind": "directory", "path": "/mnt"});
        let advice = |holders, containers: &[Record]| {
            let mounted = Mounted::of(&[view("/v", holders)], containers).unwrap();
            assert!(
                mounted.reason.starts_with("views are mounted: r/one:1 ("),
                "{mounted:?}"
            );
            mounted.advice
        };
        let running = [container];
        assert_eq!(
            advice(json!([supervisor]), &running),
            "Stop the containers first (`xebec stop f1`)"
        );
        assert_eq!(
            advice(json!([supervisor, directory]), &running),
            "Stop the containers (`xebec stop f1`) and unmount the others first"
        );
        assert_eq!(advice(json!([directory]), &[]), "Unmount them first");
        assert_eq!(Mounted::of(&[], &running), None);
    }

    #[test]
    fn readers_that_wait_are_named() {
        let process = |pid: i32, container: Option<&str>| Process {
            pid,
            comm: "cat".to_owned(),
            container: container.map(str::to_owned),
            container_run: None,
        };
        let one = process(7, None);
        assert_eq!(
            readers_wait(1, [&one].into_iter()),
            "1 reader waits for bytes: cat (process 7)"
        );
        let other = process(8, Some("web"));
        assert_eq!(
            readers_wait(3, [&one, &other, &one].into_iter()),
            "3 readers wait for bytes: cat (process 7), cat (process 8, container web)"
        );
        assert_eq!(readers_wait(2, std::iter::empty()), "2 readers wait for bytes");
        let many: Vec<Process> = (10..20).map(|pid| process(pid, None)).collect();
        assert!(readers_wait(10, many.iter()).ends_with(", and others"));
    }
}
