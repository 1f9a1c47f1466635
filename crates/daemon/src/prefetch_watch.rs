//! Hears from registries of Xebec what changes in repositories of which the daemon keeps images ready, so that a new version is brought
//! in at once and not at the next look.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info};
use xebec_images::images::Images;
use xebec_oci::{Change, NoWatch, Reference, Repository, Watch};

use crate::ending::Ending;

/// The pauses between two tries, which double. Most registries tell of no changes.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// A watch that lasted so long ended for no reason that is worth a pause.
const LASTED: Duration = Duration::from_secs(60);

/// Repositories that are watched at the same time. Watches of one registry may share a connection, which servers and proxies let have about a
/// hundred requests under way: those of starts need theirs.
const MOST: usize = 32;
/// Watches that are begun at the same time, and how long one may take: a proxy that holds answers back holds a place of other requests, too.
const BEGUN_AT_ONCE: usize = 2;
const TIME_TO_BEGIN: Duration = Duration::from_secs(10);

/// Rung when an image may have changed. One ring is kept until somebody waits for it.
#[derive(Default)]
pub(crate) struct Bell {
    ringing: Notify,
    /// Something has changed, for certain.
    is_certain: AtomicBool,
}

impl Bell {
    /// Waits until it is rung.
    pub(crate) async fn rung(&self) {
        self.ringing.notified().await;
    }

    /// Whether something has changed for certain since this was last asked.
    pub(crate) fn take_certainty(&self) -> bool {
        self.is_certain.swap(false, Ordering::Relaxed)
    }

    fn ring(&self, is_certain: bool) {
        self.is_certain.fetch_or(is_certain, Ordering::Relaxed);
        self.ringing.notify_one();
    }
}

/// The repositories that are watched, each once for the same credentials.
#[derive(Default)]
pub(crate) struct Watches(BTreeMap<(Repository, Option<PathBuf>), Vec<Listed>>);

/// An image of a repository, and the bell of its keeper.
struct Listed {
    reference: Reference,
    bell: Arc<Bell>,
}

impl Watches {
    /// Has the bell rung when this image may have changed. An image whose name cannot be read has none to change.
    pub(crate) fn add(&mut self, image: &str, docker_config: Option<PathBuf>, bell: Arc<Bell>) {
        if let Ok(reference) = image.parse::<Reference>() {
            let key = (reference.repository().clone(), docker_config);
            self.0.entry(key).or_default().push(Listed { reference, bell });
        }
    }

    /// Watches them, for ever. Of more than may be watched, those whose names come last are looked at now and then as ever.
    pub(crate) fn start(self, images: &Images, ending: &Arc<Ending>) {
        let beginning = Arc::new(Semaphore::new(BEGUN_AT_ONCE));
        for ((repository, docker_config), listed) in self.0.into_iter().take(MOST) {
            let watched = WatchedRepository {
                images: images.clone(),
                ending: ending.clone(),
                beginning: beginning.clone(),
                repository,
                docker_config,
                listed,
            };
            tokio::spawn(watched.run());
        }
    }
}

struct WatchedRepository {
    images: Images,
    ending: Arc<Ending>,
    beginning: Arc<Semaphore>,
    repository: Repository,
    docker_config: Option<PathBuf>,
    listed: Vec<Listed>,
}

impl WatchedRepository {
    async fn run(self) {
        let mut pause = FIRST_PAUSE;
        let mut was_watched = false;
        while !self.ending.has_ended() {
            // Many hosts may have been started, or have lost their registry, together.
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            let begun = Instant::now();
            if let Some(watch) = self.begin().await {
                // What has changed since the last look, or the last watch, was not told.
                self.ring(&Change::Missed);
                if !was_watched {
                    info!(repository = %self.repository, "its registry tells what changes");
                    was_watched = true;
                }
                if let Err(error) = self.hear(watch).await {
                    debug!(repository = %self.repository, %error, "its registry tells no more");
                }
            }
            pause = match begun.elapsed() >= LASTED {
                true => FIRST_PAUSE,
                false => (pause * 2).min(LONGEST_PAUSE),
            };
        }
    }

    /// A watch, if the registry has them. That it may is known once a keeper has looked there.
    async fn begin(&self) -> Option<Watch> {
        let clients = self.images.clients();
        let client = clients.get(self.docker_config.as_deref()).ok()?;
        let service = client.native_service(&self.repository)?;
        // Nobody closes it.
        let _place = self.beginning.acquire().await;
        let begun = timeout(TIME_TO_BEGIN, service.watch()).await.ok()?;
        begun
            .inspect_err(|error| debug!(repository = %self.repository, %error, "its registry tells nothing"))
            .ok()
    }

    /// Rings the bells until the watch ends.
    async fn hear(&self, mut watch: Watch) -> Result<(), NoWatch> {
        while let Some(change) = watch.next().await? {
            self.ring(&change);
        }
        Ok(())
    }

    fn ring(&self, change: &Change) {
        for listed in &self.listed {
            if concerns(&listed.reference, change) {
                listed.bell.ring(*change != Change::Missed);
            }
        }
    }
}

/// Whether an image may be another one, or may have a recording, after this. What refers to an image of one platform may matter to the name
/// of all platforms, so any reference does.
fn concerns(reference: &Reference, change: &Change) -> bool {
    match change {
        Change::Tagged { tags, .. } => {
            let name = reference.manifest_name();
            tags.iter().any(|tag| *tag == *name)
        }
        Change::Referred { .. } | Change::Missed => true,
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::digest::Digest;

    use super::*;

    #[test]
    fn an_image_is_concerned_by_its_own_tag_and_by_all_that_refers() {
        let digest = Digest::of(b"image");
        let [stable, pinned, latest] =
            ["lan/app:stable", &format!("lan/app@{digest}"), "lan/app"].map(|name| name.parse().unwrap());
        let tagged = |tags: &[&str]| Change::Tagged {
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            digest,
        };
        let told = |change: &Change| [&stable, &pinned, &latest].map(|image| concerns(image, change));
        assert_eq!(told(&tagged(&["v1", "stable"])), [true, false, false]);
        assert_eq!(told(&tagged(&["stable2"])), [false, false, false]);
        assert_eq!(told(&tagged(&["latest"])), [false, false, true]);
        assert_eq!(told(&Change::Referred { subject: digest }), [true; 3]);
        assert_eq!(told(&Change::Missed), [true; 3]);
    }

    #[test]
    fn a_repository_is_watched_once() {
        let mut watches = Watches::default();
        for image in ["lan/app:a", "lan/app:b", "lan/other:a", "no image"] {
            watches.add(image, None, Arc::default());
        }
        watches.add("lan/app:a", Some("/config.json".into()), Arc::default());
        let mut counts: Vec<usize> = watches.0.values().map(Vec::len).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 2]);
    }
}
