//! Keeps the images that `daemon.toml` lists ready: their start-up pages are brought in when the worker starts, and again when a tag
//! has moved or a recording has come: at once if the registry tells so, else at the next look.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use xebec_format::digest::Digest;
use xebec_images::images::{Images, Report};
use xebec_images::registry_failure::registry_failure;
use xebec_oci::Reference;
use xebec_oci::media_type::ACCEPT_IMAGE;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::settings::PrefetchSettings;
use xebec_protocol::wire::{Completion, ImageRequest, Prefetch, Prefetched, PullPolicy};

use crate::ending::Ending;
use crate::prefetch::Prefetches;
use crate::prefetch_settling::Settling;
use crate::prefetch_watch::{Bell, Watches};

/// Images whose pages are brought in, or whose registries are asked, at the same time: starts go first.
const AT_ONCE: usize = 2;
/// Images that are brought in whole at the same time. That is slow on purpose, and pages do not wait for it.
const WHOLE_AT_ONCE: usize = 8;
/// Even if the tag has not moved, recordings are looked for after so many looks: they are made later than the image.
const LOOKS_FOR_RECORDINGS: u32 = 3;
/// After failures the pause doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);
/// The first looks are spread over this: many hosts may have been started together.
const SPREAD: Duration = Duration::from_secs(10);
/// And so are those of many hosts that hear of a new version.
const SPREAD_AFTER_BELL: Duration = Duration::from_secs(2);
/// A registry that tells of changes all the time makes no host look more often than this; after failures the time doubles.
const LEAST_BETWEEN: Duration = Duration::from_secs(10);
/// Where something may have changed, this is enough. All hosts hear of that when their registry has been away.
const SPREAD_AFTER_DOUBT: Duration = Duration::from_secs(60);

/// Keeps listed images ready.
pub(crate) struct PrefetchList {
    pub(crate) prefetches: Arc<Prefetches>,
    pub(crate) images: Images,
    pub(crate) ending: Arc<Ending>,
    pub(crate) listed: Vec<PrefetchSettings>,
}

impl PrefetchList {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Keeps all of them ready, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let (places, whole) = (
            Arc::new(Semaphore::new(AT_ONCE)),
            Arc::new(Semaphore::new(WHOLE_AT_ONCE)),
        );
        let mut watches = Watches::default();
        for listed in self.listed.clone() {
            let bell = Arc::<Bell>::default();
            if listed.watch {
                watches.add(&listed.image, listed.docker_config.clone(), bell.clone());
            }
            let keeper = ImageKeeper {
                list: self.clone(),
                places: places.clone(),
                whole: whole.clone(),
                ready: None,
                is_whole: false,
                looks: 0,
                failures: 0,
                settling: Settling::default(),
                listed,
                bell,
            };
            tokio::spawn(keeper.run());
        }
        watches.start(&self.images, &self.ending);
    }
}

/// Up to this time.
fn by_chance(time: Duration) -> Duration {
    time.mul_f64(fastrand::f64())
}

/// An image whose pages were brought in.
struct Ready {
    /// The digest that the reference led to, if the registry says it.
    leads_to: Option<Digest>,
    /// The recordings that there were.
    recordings: BTreeSet<Digest>,
}

/// Keeps one image ready.
struct ImageKeeper {
    list: Arc<PrefetchList>,
    places: Arc<Semaphore>,
    whole: Arc<Semaphore>,
    listed: PrefetchSettings,
    ready: Option<Ready>,
    /// All of the image is here as well, if that is wanted.
    is_whole: bool,
    /// Looks since recordings were looked for.
    looks: u32,
    /// Failures in a row.
    failures: u32,
    settling: Settling,
    /// Rung when the registry tells of a change.
    bell: Arc<Bell>,
}

impl ImageKeeper {
    async fn run(mut self) {
        sleep(by_chance(SPREAD)).await;
        loop {
            if self.list.ending.has_ended() {
                return;
            }
            match self.look().await {
                Ok(()) => self.failures = 0,
                Err(failure) => {
                    // Once until it works again: a registry that is away for a night is one line.
                    if self.failures == 0 {
                        let image = &self.listed.image;
                        warn!("{image} is not prefetched: {failure}; it is tried again");
                    }
                    self.failures += 1;
                }
            }
            self.wait().await;
        }
    }

    /// Waits until it is time to look, or the bell rings.
    async fn wait(&mut self) {
        let looked = Instant::now();
        let pause = self.settling.left(looked).unwrap_or_else(|| self.pause());
        if timeout(pause, self.bell.rung()).await.is_err() {
            return;
        }
        let mut is_certain = self.bell.take_certainty();
        if !is_certain {
            let _ = timeout(by_chance(SPREAD_AFTER_DOUBT), self.bell.rung()).await;
            is_certain = self.bell.take_certainty();
        }
        if is_certain {
            self.looks = LOOKS_FOR_RECORDINGS;
            sleep(by_chance(SPREAD_AFTER_BELL)).await;
        }
        let least = LEAST_BETWEEN.saturating_mul(1 << self.failures.min(10));
        sleep(least.min(pause).saturating_sub(looked.elapsed())).await;
    }

    /// Hosts that were started together should not ask together.
    fn pause(&self) -> Duration {
        let doubled = self.listed.every.saturating_mul(1 << self.failures.min(10));
        let pause = doubled.min(LONGEST_PAUSE.max(self.listed.every));
        pause.mul_f64(0.9 + 0.2 * fastrand::f64())
    }

    /// Asks where the reference leads, and brings in what is new.
    async fn look(&mut self) -> Result<(), Failure> {
        {
            // Nobody closes it.
            let places = self.places.clone();
            let _place = places.acquire().await;
            self.look_for_pages().await?;
        }
        match self.listed.complete {
            Some(time) if !self.is_whole => self.bring_whole(time).await,
            _ => Ok(()),
        }
    }

    async fn look_for_pages(&mut self) -> Result<(), Failure> {
        let leads_to = self.leads_to().await?;
        self.looks += 1;
        let known = self.ready.as_ref();
        let has_moved = known.is_some_and(|ready| ready.leads_to != leads_to);
        let is_well = known.is_some() && !has_moved && self.failures == 0;
        if is_well && self.looks < LOOKS_FOR_RECORDINGS {
            self.settling.end();
            return Ok(());
        }
        self.looks = 0;
        let nobody: Report = Arc::new(|_| ());
        let image = self.request();
        let listed = self.list.prefetches.recorded(&image, &nobody).await?;
        let recordings = listed.services.iter().map(|service| service.recording).collect();
        let is_known = |ready: &Ready| is_well && ready.recordings == recordings;
        if self.ready.as_ref().is_some_and(is_known) {
            self.settling.end();
            return Ok(());
        }
        if listed.services.is_empty() && has_moved && self.settling.has_time(leads_to, Instant::now()) {
            self.looks = LOOKS_FOR_RECORDINGS;
            return Ok(());
        }
        self.settling.end();
        let wanted = Prefetch {
            image,
            services: self.listed.services.clone(),
            completion: None,
        };
        let prefetched = self.list.prefetches.prefetch(&wanted, &nobody).await?;
        self.is_whole &= !has_moved && self.ready.is_some();
        self.judge(&prefetched)?;
        self.ready = Some(Ready { leads_to, recordings });
        Ok(())
    }

    /// The pages come again at the next look if they did not come; a recording that may not be used is only named.
    fn judge(&self, prefetched: &Prefetched) -> Result<(), Failure> {
        let image = &self.listed.image;
        for service in &prefetched.services {
            let Some(problem) = &service.loaded.problem else {
                continue;
            };
            let line = service.argv.join(" ");
            match service.is_refused {
                true => warn!("{image}, {line:?}: {problem}"),
                false => {
                    return Err(Failure::new(
                        FailureKind::Registry,
                        format!("{line:?}: {problem}"),
                    ));
                }
            }
        }
        let fetched = prefetched.services.iter().map(|service| service.loaded.bytes);
        info!(
            %image,
            manifest = %prefetched.manifest,
            services = prefetched.services.len(),
            bytes = fetched.sum::<u64>(),
            "prefetched"
        );
        Ok(())
    }

    /// Brings all of the image in, within about that time.
    async fn bring_whole(&mut self, time: Duration) -> Result<(), Failure> {
        let whole = self.whole.clone();
        let _place = whole.acquire().await;
        let completion = Completion {
            deadline_seconds: time.as_secs(),
        };
        let nobody: Report = Arc::new(|_| ());
        let manifest = self
            .list
            .prefetches
            .bring_image(&self.request(), Some(completion), &nobody)
            .await?;
        self.is_whole = true;
        info!(image = %self.listed.image, %manifest, "all of it is here");
        Ok(())
    }

    /// The digest that the reference leads to, if the registry says it without sending the manifest.
    async fn leads_to(&self) -> Result<Option<Digest>, Failure> {
        let reference = self.listed.image.parse::<Reference>();
        let reference = reference.map_err(|error| Failure::new(FailureKind::Usage, error))?;
        let clients = self.list.images.clients();
        let client = clients.get(self.listed.docker_config.as_deref())?;
        let name = reference.manifest_name();
        let said = client
            .manifest_digest(reference.repository(), &name, ACCEPT_IMAGE)
            .await;
        said.map_err(|error| registry_failure(&error))
    }

    fn request(&self) -> ImageRequest {
        ImageRequest {
            reference: self.listed.image.clone(),
            platform: self.listed.platform.clone(),
            docker_config: self.listed.docker_config.clone(),
            pull: PullPolicy::Always,
            part: None,
            manifest: None,
        }
    }
}
