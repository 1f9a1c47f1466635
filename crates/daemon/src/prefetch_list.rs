//! Keeps the images that `daemon.toml` lists ready: their start-up pages are brought in when the worker starts, and again when a tag
//! has moved or a recording may have come.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{info, warn};
use xebec_format::digest::Digest;
use xebec_images::images::{Images, Report};
use xebec_images::registry_failure::registry_failure;
use xebec_oci::Reference;
use xebec_oci::media_type::ACCEPT_IMAGE;
use xebec_protocol::failure::Failure;
use xebec_protocol::settings::PrefetchSettings;
use xebec_protocol::wire::{Completion, ImageRequest, Prefetch, Prefetched};

use crate::prefetch::Prefetches;

/// Images that are brought in at the same time: starts go first.
const AT_ONCE: usize = 2;
/// Even if the tag has not moved, recordings are looked for again after so many looks: they come later than the image.
const LOOKS_FOR_RECORDINGS: u32 = 3;
/// After failures the pause doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Keeps listed images ready.
pub(crate) struct PrefetchList {
    pub(crate) prefetches: Arc<Prefetches>,
    pub(crate) images: Images,
    pub(crate) listed: Vec<PrefetchSettings>,
}

impl PrefetchList {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Keeps all of them ready, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        for listed in self.listed.clone() {
            let keeper = ImageKeeper {
                list: self.clone(),
                places: places.clone(),
                seen: None,
                looks: 0,
                failures: 0,
                listed,
            };
            tokio::spawn(keeper.run());
        }
    }
}

/// Keeps one image ready.
struct ImageKeeper {
    list: Arc<PrefetchList>,
    places: Arc<Semaphore>,
    listed: PrefetchSettings,
    /// The digest that the reference led to when the image was brought in last.
    seen: Option<Digest>,
    /// Looks since then.
    looks: u32,
    /// Failures in a row.
    failures: u32,
}

impl ImageKeeper {
    async fn run(mut self) {
        loop {
            match self.look().await {
                Ok(()) => self.failures = 0,
                Err(failure) => {
                    // Once until it works again: a registry that is away for a night is one line.
                    if self.failures == 0 {
                        warn!(
                            "{} is not prefetched: {failure}; it is tried again",
                            self.listed.image
                        );
                    }
                    self.failures += 1;
                    self.seen = None;
                }
            }
            sleep(self.pause()).await;
        }
    }

    /// Hosts that were started together should not ask together.
    fn pause(&self) -> Duration {
        let doubled = self.listed.every.saturating_mul(1 << self.failures.min(10));
        let pause = doubled.min(LONGEST_PAUSE.max(self.listed.every));
        pause.mul_f64(0.9 + 0.2 * fastrand::f64())
    }

    /// Asks where the reference leads, and brings in what is new.
    async fn look(&mut self) -> Result<(), Failure> {
        let leads_to = self.leads_to().await?;
        self.looks += 1;
        let is_new = self.seen.is_none() || leads_to.is_none() || leads_to != self.seen;
        if !is_new && self.looks < LOOKS_FOR_RECORDINGS {
            return Ok(());
        }
        // Closed never.
        let _place = self.places.acquire().await;
        let wanted = Prefetch {
            image: self.request(),
            services: self.listed.services.clone(),
            completion: self.listed.complete.map(|time| Completion {
                deadline_seconds: time.as_secs(),
            }),
        };
        let nobody: Report = Arc::new(|_| ());
        let prefetched = self.list.prefetches.prefetch(&wanted, &nobody).await?;
        self.seen = leads_to;
        self.looks = 0;
        self.tell(&prefetched);
        Ok(())
    }

    /// The digest that the reference leads to, if the registry says it without sending the manifest.
    async fn leads_to(&self) -> Result<Option<Digest>, Failure> {
        let reference: Reference = match self.listed.image.parse() {
            Ok(reference) => reference,
            // The settings were read, so it can be.
            Err(_) => return Ok(None),
        };
        let client = self
            .list
            .images
            .clients()
            .get(self.listed.docker_config.as_deref())?;
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
            ..ImageRequest::default()
        }
    }

    fn tell(&self, prefetched: &Prefetched) {
        let image = &self.listed.image;
        for service in &prefetched.services {
            if let Some(problem) = &service.loaded.problem {
                warn!("{image}, {:?}: {problem}", service.argv.join(" "));
            }
        }
        let bytes: u64 = prefetched
            .services
            .iter()
            .map(|service| service.loaded.bytes)
            .sum();
        info!(
            %image,
            manifest = %prefetched.manifest,
            services = prefetched.services.len(),
            bytes,
            complete = prefetched.complete,
            "prefetched"
        );
    }
}
