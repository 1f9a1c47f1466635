//! The events that a worker waits for while it serves: connections, the keeper's orders, and the time when nobody needs it any more.

use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{Instant, interval, sleep};
use tracing::{debug, info, warn};
use xebec_kernel::journal::{Custody, Journal, LastWord};
use xebec_kernel::process::Child;
use xebec_protocol::failure::Failure;
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::Views;

use super::orders::Orders;
use crate::background::run_without_turn;
use crate::ending::Ending;
use crate::prefetch_list::PrefetchList;
use crate::requests::Requests;
use crate::server;
use crate::services::{Opened, Services};
use crate::snapshot_service::Snapshots;
use crate::view_cleanup::ViewCleanup;

/// A daemon without views ends after this long without a request. It costs little, and a start that finds it
/// running saves a few milliseconds.
const IDLE: Duration = Duration::from_secs(60);
/// How long a worker that is told to stop waits for its replies to be read.
const LAST_REPLIES: Duration = Duration::from_secs(1);
/// How long requests under way may take when the worker is replaced; their clients ask the next one otherwise.
const LAST_REQUESTS: Duration = Duration::from_secs(1);
/// How often holders that have died are looked for.
const SWEEP: Duration = Duration::from_secs(2);

/// Connections under way: as many as there are copies of this.
#[derive(Clone, Default)]
struct Connections(Arc<()>);

impl Connections {
    fn are_ended(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Waits until all have ended, for at most this long.
    async fn wait(&self, most: Duration) {
        let deadline = Instant::now() + most;
        while !self.are_ended() && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Serves clients, and knows when to end.
pub(super) struct Serving {
    requests: Arc<Requests>,
    ending: Arc<Ending>,
    cleanup: Arc<ViewCleanup>,
    snapshots: Arc<Snapshots>,
    prefetch_list: Arc<PrefetchList>,
    views: Arc<Views>,
    suspects: Arc<Suspects>,
    journal: Arc<Journal>,
    connections: Connections,
    /// Tells conversations that another worker will answer.
    hand_over: Arc<Notify>,
    idle_since: Instant,
}

impl Serving {
    /// Of a worker that has just started.
    pub(super) fn new(opened: &Opened, services: &Services) -> Self {
        Self {
            requests: services.requests.clone(),
            ending: services.ending.clone(),
            cleanup: services.cleanup.clone(),
            snapshots: services.snapshots.clone(),
            prefetch_list: services.prefetch_list.clone(),
            views: opened.views.clone(),
            suspects: opened.suspects.clone(),
            journal: opened.journal.clone(),
            connections: Connections::default(),
            hand_over: Arc::default(),
            idle_since: Instant::now(),
        }
    }

    /// Serves until there is nothing more to do, or another worker is to do it. Gives the worker's last word to its keeper.
    pub(super) async fn serve(
        mut self,
        listener: StdListener,
        mut orders: Orders,
    ) -> Result<LastWord, Failure> {
        let failed = |error| Failure::host("listen for the command line", error);
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        let mut sweep = interval(SWEEP);
        loop {
            let last_word = tokio::select! {
                accepted = listener.accept() => {
                    match accepted {
                        Ok((stream, _)) => self.converse(stream),
                        Err(error) => warn!("cannot accept a connection: {error}"),
                    }
                    None
                },
                () = self.ending.is_stopped() => {
                    // The client that asked for it wants the answer.
                    self.connections.wait(LAST_REPLIES).await;
                    Some(LastWord::Finished)
                }
                _ = orders.replace.recv() => self.make_room().await,
                _ = orders.stop.recv() => self.stop().await?,
                _ = sweep.tick() => self.sweep().await?,
            };
            if let Some(last_word) = last_word {
                return Ok(last_word);
            }
        }
    }

    fn converse(&self, stream: UnixStream) {
        let (requests, connection) = (self.requests.clone(), self.connections.clone());
        let hand_over = self.hand_over.clone();
        tokio::spawn(async move {
            server::converse(stream, requests, hand_over).await;
            drop(connection);
        });
    }

    /// Another worker is to take over. Clients that come now wait in the socket's queue; those that are here get a moment.
    async fn make_room(&self) -> Option<LastWord> {
        if !self.keeper_lives() {
            return None;
        }
        self.connections.wait(LAST_REQUESTS).await;
        self.hand_over.notify_waiters();
        self.connections.wait(LAST_REPLIES).await;
        // One of the last requests was to stop, and its client was told that it is done.
        if self.ending.has_ended() {
            return Some(LastWord::Finished);
        }
        self.keeper_lives().then_some(LastWord::HandedOver)
    }

    /// Whether the keeper is there to start the next worker. If not, this one must go on: it holds the group.
    fn keeper_lives(&self) -> bool {
        let keeper = Child::open(self.journal.counters().keeper_pid);
        let lives = keeper.is_ok_and(|keeper| !keeper.has_ended().unwrap_or(true));
        if !lives {
            warn!("told to make room for another worker, but no keeper would start it; this worker goes on");
        }
        lives
    }

    /// The keeper hands a request to stop on. Status 0 says that nothing needs events any more, so views go first: one that
    /// stayed mounted would show zeros.
    async fn stop(&self) -> Result<Option<LastWord>, Failure> {
        let ending = self.ending.clone();
        let begun = run_without_turn(move || ending.begin_to_end()).await?;
        Ok(begun.is_none().then_some(LastWord::Finished))
    }

    /// Looks for holders that have died, and whether anybody needs this worker.
    async fn sweep(&mut self) -> Result<Option<LastWord>, Failure> {
        let ending = self.ending.clone();
        if run_without_turn(move || ending.has_come_to_its_end()).await? {
            return Ok(Some(LastWord::Finished));
        }
        self.cleanup.sweep();
        if self.views.are_unused() && self.ending.root_was_replaced() {
            self.views.take_down_unused(|_| true);
            info!("the root directory was removed: the daemon stops, and the next command starts another");
            return Ok(Some(LastWord::Finished));
        }
        if !self.is_unused() {
            self.idle_since = Instant::now();
            return Ok(None);
        }
        if self.idle_since.elapsed() <= IDLE {
            return Ok(None);
        }
        let ending = self.ending.clone();
        if let Some(reason) = run_without_turn(move || ending.end_if_unused()).await? {
            debug!("not idle: {reason}");
            self.idle_since = Instant::now();
            return Ok(None);
        }
        info!("idle: no views and no requests for {} s", IDLE.as_secs());
        Ok(Some(LastWord::Finished))
    }

    /// Whether nobody uses this worker now, and a command could start another one.
    fn is_unused(&self) -> bool {
        // A service manager's service stays until it is stopped.
        let is_own = self.journal.custody() == Custody::Own;
        // containerd cannot start a worker, and nobody else keeps listed images ready.
        let is_awaited = self.snapshots.are_served() || !self.prefetch_list.is_empty();
        is_own
            && !is_awaited
            && self.views.are_unused()
            && self.suspects.is_empty()
            && self.connections.are_ended()
    }
}
