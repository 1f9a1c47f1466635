//! Copies on several places: the work in the background, by the rules of `[[copies]]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use xebec_dedup::{Cutting, Forms, How};
use xebec_events::{Event, EventKind, Listener};
use xebec_placement::Form;
use xebec_policy::copies::CopyRules;
use xebec_replication::{FormsByRules, Placer, Popularity, Rules, Worked};
use xebec_store::{Digest, Store, StoreError};

use crate::mode_file::ModeFile;
use crate::state::Registry;

/// While nothing may be written, it is looked this often whether that has changed.
const LOOK_AT_MODE: Duration = Duration::from_secs(1);
/// How often it is looked for what has changed, beside each time that something is pushed.
const LOOK: Duration = Duration::from_secs(10);
/// After the store has failed.
const PAUSE: Duration = Duration::from_secs(30);

/// Has copies made and dropped while the registry serves.
pub struct Copies {
    placer: Placer,
    popularity: Popularity,
    rules: Rules,
    has_new_rules: AtomicBool,
    changed: Notify,
    runtime: Handle,
    mode: ModeFile,
}

impl Copies {
    /// A part of a registry that works once [`Copies::run`] is called.
    pub fn within(registry: &Registry, rules: Rules) -> Arc<Self> {
        let store = registry.store.clone();
        Arc::new(Self {
            placer: Placer::new(store.clone(), rules.clone()),
            popularity: Popularity::new(store, rules.clone()),
            rules,
            has_new_rules: AtomicBool::new(true),
            changed: Notify::new(),
            runtime: Handle::current(),
            mode: registry.mode.clone(),
        })
    }

    /// Has other rules count from now on.
    pub fn set_rules(&self, rules: CopyRules) {
        self.rules.set(rules);
        self.has_new_rules.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Works until the program ends.
    pub async fn run(self: Arc<Self>) {
        loop {
            while !self.mode.is_normal() {
                tokio::time::sleep(LOOK_AT_MODE).await;
            }
            match self.work().await {
                Ok(true) => {}
                Ok(false) => {
                    let _ = tokio::time::timeout(LOOK, self.changed.notified()).await;
                }
                Err(error) => {
                    tracing::warn!("copies wait for the store: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn begin(&self) -> Result<bool, StoreError> {
        let begun = self.placer.begin().await;
        if begun.is_err() {
            self.has_new_rules.store(true, Ordering::Relaxed);
        }
        begun
    }

    /// Looks at some blobs and packs; whether there were any.
    async fn work(&self) -> Result<bool, StoreError> {
        if !self.placer.is_needed().await? {
            return Ok(false);
        }
        // Not each time: other nodes may have other rules for a while.
        if self.has_new_rules.swap(false, Ordering::Relaxed) && self.begin().await? {
            tracing::info!("the rules for copies have changed; everything is looked at");
        }
        self.placer.forget_unpopular().await?;
        let Some(worked) = self.placer.work_once().await? else {
            return Ok(false);
        };
        report(&worked);
        Ok(true)
    }
}

fn report(worked: &Worked) {
    let placed = &worked.placed;
    if placed.made + placed.dropped + worked.reformed > 0 {
        tracing::info!(
            made = placed.made,
            made_bytes = placed.made_bytes,
            dropped = placed.dropped,
            dropped_bytes = placed.dropped_bytes,
            "copies are where the rules want them"
        );
    }
    if let Some(problem) = &worked.problem {
        tracing::warn!(
            "copies of {} blobs or packs wait, and are tried again after a pause: {problem}",
            worked.failed
        );
    }
}

impl Copies {
    async fn count(self: Arc<Self>, repository: String, digest: Digest) {
        match self.popularity.pulled(&repository, &digest).await {
            Ok(true) => self.changed.notify_one(),
            Ok(false) => {}
            Err(error) => tracing::debug!("a pull is not counted: {error}"),
        }
    }
}

/// Has copies looked at when something is pushed, and counts pulls, for rules that keep more of what is popular.
pub struct Heard(Arc<Copies>);

impl Heard {
    /// By these copies.
    pub fn by(copies: Arc<Copies>) -> Arc<Self> {
        Arc::new(Self(copies))
    }
}

impl Listener for Heard {
    fn happened(&self, event: &Event) {
        match event.kind {
            EventKind::PushManifest => self.0.changed.notify_one(),
            EventKind::PullBlob if self.0.rules.get().popular(&event.repository).is_some() => {
                if let Some(Ok(digest)) = event.digest.as_ref().map(|digest| digest.parse()) {
                    let counted = self.0.clone().count(event.repository.clone(), digest);
                    self.0.runtime.spawn(counted);
                }
            }
            _ => {}
        }
    }
}

/// Tells those who take blobs apart in which form the rules want them.
pub struct ByRules(FormsByRules);

impl ByRules {
    /// By these rules.
    pub fn new(rules: Rules) -> Self {
        Self(FormsByRules::new(rules))
    }
}

impl Forms for ByRules {
    fn count(&self) -> bool {
        self.0.count()
    }

    fn of<'a>(&'a self, store: &'a Store, blob: &'a Digest) -> BoxFuture<'a, Result<How, StoreError>> {
        Box::pin(async move {
            Ok(match self.0.of(store, blob).await? {
                None => How::Usual,
                Some(Ok(Form::Chunks)) => How::Cut(Cutting::Contents),
                Some(Ok(_)) => How::Cut(Cutting::Files),
                Some(Err(why)) => How::Stays(why),
            })
        })
    }
}
