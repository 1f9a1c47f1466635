//! Hears from registries of Xebec what changes in repositories of which the daemon keeps images ready, so that a new version is brought
//! in at once and not at the next look.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};
use xebec_images::images::Images;
use xebec_oci::{Change, NoWatch, Reference, Repository, Watch};

use crate::ending::Ending;

/// The pauses between two tries, which double. Most registries tell of no changes.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// A watch that lasted so long ended for no reason that is worth a pause.
const LASTED: Duration = Duration::from_secs(60);

/// Rung when an image may have changed. One ring is kept until somebody waits for it.
pub(crate) type Bell = Arc<Notify>;

/// The repositories that are watched, each once for the same credentials.
#[derive(Default)]
pub(crate) struct Watches(HashMap<(Repository, Option<PathBuf>), Vec<Listed>>);

/// An image of a repository, and the bell of its keeper.
struct Listed {
    reference: Reference,
    bell: Bell,
}

impl Watches {
    /// The bell of an image. It is never rung if the image's name leads to the same content for ever, or cannot be read.
    pub(crate) fn bell(&mut self, image: &str, docker_config: Option<PathBuf>) -> Bell {
        let bell = Bell::default();
        if let Ok(reference) = image.parse::<Reference>() {
            let key = (reference.repository().clone(), docker_config);
            self.0.entry(key).or_default().push(Listed {
                reference,
                bell: bell.clone(),
            });
        }
        bell
    }

    /// Watches all of them, for ever.
    pub(crate) fn start(self, images: &Images, ending: &Arc<Ending>) {
        for ((repository, docker_config), listed) in self.0 {
            let watched = WatchedRepository {
                images: images.clone(),
                ending: ending.clone(),
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
                if was_watched {
                    self.ring(&Change::Missed);
                } else {
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
        let begun = service.watch().await;
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
                listed.bell.notify_one();
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
            watches.bell(image, None);
        }
        watches.bell("lan/app:a", Some("/config.json".into()));
        let mut counts: Vec<usize> = watches.0.values().map(Vec::len).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 2]);
    }
}
