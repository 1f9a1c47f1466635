//! Reference → manifest and configuration. A manifest that this host has a record of is the same image as then, so only the
//! tag is asked for. A service that is started here for the first time has its configuration from its recording, if there
//! is one (`referrers`).

use std::time::Duration;

use bytes::Bytes;
use xebec_format::digest::Digest;
use xebec_oci::{Client, ClientError, ImageConfig, LocatedImage, Platform, Reference, ResolvedImage};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{ImageRequest, PullPolicy, Reply};

use crate::found_image::{FoundImage, parse_manifest};
use crate::images::{Images, Report};
use crate::in_advance::{Asked, OnTheWay, Starting};
use crate::record::{Fit, ImageRecord};
use crate::referrers::Referrers;
use crate::registry_failure::registry_failure;

/// How long a registry may take to resolve an image, where this host knows an older answer. Healthy registries
/// take a fraction of a second for the two to four requests; a user who starts a local image should not wait for
/// one that is away.
const WHERE_KNOWN: Duration = Duration::from_secs(5);

impl Images {
    /// Finds an image in its registry, or among the records when the registry cannot be reached.
    ///
    /// # Errors
    /// A reference that is none, an image that is not there, a registry that refuses or answers nonsense.
    pub async fn resolve(&self, request: &ImageRequest, report: &Report) -> Result<FoundImage, Failure> {
        let (found, _) = self.resolve_with(request, None, report).await?;
        Ok(found)
    }

    /// The same. For a service that is `starting` the configuration may come from a carrier, and all may come in advance; what was asked
    /// for on the way is given.
    ///
    /// # Errors
    /// Those of [`Self::resolve`].
    pub async fn resolve_with(
        &self,
        request: &ImageRequest,
        starting: Option<&Starting<'_>>,
        report: &Report,
    ) -> Result<(FoundImage, OnTheWay), Failure> {
        let reference: Reference = request
            .reference
            .parse()
            .map_err(|error| Failure::new(FailureKind::Usage, error))?;
        // A part is one of an image that containerd pulls.
        if request.part.is_none()
            && let Some(committed) = self.resolve_committed(&reference, request.manifest).await?
        {
            return Ok((committed, OnTheWay::default()));
        }
        if let Some(manifest) = request.manifest {
            if let Some(known) = self.known_by_name(&reference, manifest) {
                return Ok((known, OnTheWay::default()));
            }
            let exactly = reference.repository().at(manifest);
            return self.resolve_named(request, exactly, starting, report).await;
        }
        let Some(part) = request.part else {
            return self.resolve_named(request, reference, starting, report).await;
        };
        let mut found = self
            .resolve_manifest(request, reference, part.manifest, report)
            .await?;
        let layers = usize::try_from(part.layers).unwrap_or(usize::MAX);
        found.is_part = layers < found.layers.len();
        found.layers.truncate(layers);
        found.diff_ids.truncate(layers);
        Ok((found, OnTheWay::default()))
    }

    /// Finds a manifest that a name led to once; now it may lead elsewhere, or lead there for another platform.
    pub(crate) async fn resolve_manifest(
        &self,
        request: &ImageRequest,
        reference: Reference,
        manifest: Digest,
        report: &Report,
    ) -> Result<FoundImage, Failure> {
        let known = self.records.get(manifest);
        // That a digest leads to another manifest must have been seen.
        let leads_there = |record: &ImageRecord| match reference.digest() {
            Some(named) if named != manifest => record.references.contains(&reference.to_string()),
            _ => true,
        };
        let known = known.filter(leads_there);
        if let Some(found) = known.and_then(|record| from_record(reference.clone(), &record, false)) {
            return Ok(found);
        }
        let named = reference.clone();
        match self.resolve_named(request, named, None, report).await {
            Ok((found, _)) if found.manifest_digest == manifest => return Ok(found),
            Err(failure) if failure.kind != FailureKind::NotFound => return Err(failure),
            _ if reference.is_by_digest() => {
                let message = format!("{reference} does not lead to manifest {manifest}");
                return Err(Failure::new(FailureKind::Usage, message));
            }
            _ => {}
        }
        let exactly = reference.repository().at(manifest);
        let (found, _) = self.resolve_named(request, exactly, None, report).await?;
        Ok(FoundImage { reference, ..found })
    }

    /// A manifest as this host's record has it.
    pub(crate) fn known_manifest(&self, reference: Reference, manifest: Digest) -> Option<FoundImage> {
        let record = self.records.get(manifest)?;
        from_record(reference, &record, true)
    }

    async fn resolve_named(
        &self,
        request: &ImageRequest,
        reference: Reference,
        starting: Option<&Starting<'_>>,
        report: &Report,
    ) -> Result<(FoundImage, OnTheWay), Failure> {
        let platform = match &request.platform {
            Some(text) => text
                .parse()
                .map_err(|error| Failure::new(FailureKind::Usage, error))?,
            None => Platform::host(),
        };
        let client = self.clients.get(request.docker_config.as_deref())?;
        let wanted = request.platform.is_some().then_some(&platform);
        if let Some(found) = self.resolve_by_record(&reference, wanted) {
            return Ok((found, OnTheWay::default()));
        }
        let known = self.records.find(&reference.to_string()).and_then(|record| {
            let fit = record.fit(&platform)?;
            Some((fit, from_record(reference.clone(), &record, true)?))
        });
        if let Some((_, known)) = &known {
            // Tags seldom move.
            known.tell(report);
        }
        let known = match (request.pull, known) {
            (PullPolicy::Never, Some((_, known))) => return Ok((known, OnTheWay::default())),
            (PullPolicy::Never, None) => return Err(unknown(&reference, &platform)),
            (PullPolicy::Missing, Some((Fit::Exactly, known))) => {
                let offline = false;
                return Ok((FoundImage { offline, ..known }, OnTheWay::default()));
            }
            (_, known) => known.map(|(_, known)| known),
        };
        let asked_for = |(found, on_the_way)| {
            let platform = Some(platform.normalized().to_string());
            (FoundImage { platform, ..found }, on_the_way)
        };
        let Some(known) = known else {
            let found = self.first_contact(client, &reference, &platform, starting).await;
            return found.map(asked_for).map_err(|error| registry_failure(&error));
        };
        let hasty = client.hasty(WHERE_KNOWN);
        let located = tokio::time::timeout(WHERE_KNOWN, hasty.locate(&reference, &platform)).await;
        let found = match located {
            Ok(Ok(located)) => {
                let limit = Some(WHERE_KNOWN);
                self.configure(client, located, &platform, starting, limit, true)
                    .await
            }
            Ok(Err(error)) => Err(error),
            Err(_) => return Ok(instead(known, silence(&reference), report)),
        };
        match found {
            Err(error) if is_away(&error) => Ok(instead(known, error.to_string(), report)),
            found => found.map(asked_for).map_err(|error| registry_failure(&error)),
        }
    }

    /// Finds an image of which this host knows nothing.
    async fn first_contact(
        &self,
        client: Client,
        reference: &Reference,
        platform: &Platform,
        starting: Option<&Starting<'_>>,
    ) -> Result<(FoundImage, OnTheWay), ClientError> {
        let asked = match starting {
            Some(Starting { command, .. }) => {
                self.ask_in_advance(&client, reference, platform, None, command, None)
                    .await
            }
            None => Asked::No,
        };
        let may_ask = matches!(asked, Asked::No);
        let (client, refused) = match asked {
            Asked::Answered(answered) => (answered, None),
            Asked::Refused(service) => (client, Some(service)),
            Asked::No | Asked::InVain => (client, None),
        };
        let located = client.for_first_contact().locate(reference, platform).await?;
        if let Some(service) = refused {
            service.rest();
        }
        self.configure(client, located, platform, starting, None, may_ask)
            .await
    }

    /// Finds a configuration: in a record of the image, in a recording of it, or in the registry. An image without a record has nothing
    /// else here either, so the rest is asked for in advance, if the registry was not asked for that yet (`may_ask`). Where something is
    /// known, no question takes longer than `limit`.
    async fn configure(
        &self,
        mut client: Client,
        located: LocatedImage,
        platform: &Platform,
        starting: Option<&Starting<'_>>,
        limit: Option<Duration>,
        may_ask: bool,
    ) -> Result<(FoundImage, OnTheWay), ClientError> {
        let manifest = located.manifest_digest();
        let record = self.records.get(manifest);
        let (mut config, mut user) = record.map_or((None, None), |record| {
            (Some(Bytes::from(record.config.into_bytes())), record.user)
        });
        let mut referrers = None;
        if let Some(Starting { carriers, command }) = starting
            && config.is_none()
            && (carriers.are_due)(manifest)
        {
            if may_ask {
                let exactly = located.repository().at(manifest);
                let layers = Some(located.layers().collect());
                let asked = self.ask_in_advance(&client, &exactly, platform, layers, command, limit);
                match asked.await {
                    Asked::Answered(answered) => client = answered,
                    // The manifest was there.
                    Asked::Refused(service) => service.rest(),
                    Asked::No | Asked::InVain => {}
                }
            }
            let ahead = Referrers::at_once(client.clone(), located.repository(), manifest);
            if let Some(carried) = ahead.config(located.config(), carriers).await {
                (config, user) = (Some(carried.bytes), carried.user);
            }
            referrers = Some(ahead);
        }
        let patient = match limit {
            Some(limit) => client.hasty(limit),
            None => client.clone(),
        };
        let image = patient.resolve_located(located, config).await?;
        let found = FoundImage { user, ..found(image) };
        let client = client.has_answers().then_some(client);
        Ok((found, OnTheWay { referrers, client }))
    }

    /// A manifest that an earlier start found by `reference`, if this host still knows the reference to name it. A
    /// policy may ask how the user named it.
    fn known_by_name(&self, reference: &Reference, manifest: Digest) -> Option<FoundImage> {
        let record = self.records.get(manifest)?;
        let is_named_so = record.references.contains(&reference.to_string());
        is_named_so
            .then(|| from_record(reference.clone(), &record, false))
            .flatten()
    }

    /// A digest names one manifest for ever, so a record of it needs no question. (An image index named by digest
    /// is asked for again: which of its images fits depends on the platform, and it may bind indexes.)
    fn resolve_by_record(&self, reference: &Reference, platform: Option<&Platform>) -> Option<FoundImage> {
        let record = self.records.get(reference.digest()?)?;
        if let Some(platform) = platform {
            record.fit(platform)?;
        }
        from_record(reference.clone(), &record, false)
    }
}

fn unknown(reference: &Reference, platform: &Platform) -> Failure {
    let message = format!(
        "this host knows no image {reference} for {platform}, and --pull never forbids to ask its registry; run \
         `xebec pull` first"
    );
    Failure::new(FailureKind::NotFound, message)
}

/// The image as this host knows it, since its registry does not say more.
fn instead(known: FoundImage, problem: String, report: &Report) -> (FoundImage, OnTheWay) {
    let text = format!("{problem}; using what this host knows of {}", known.reference);
    report(Reply::Notice { text });
    (known, OnTheWay::default())
}

/// Refused connections, broken ones, a proxy that says 503, a limit that is used up: what a registry does while it is
/// down, restarts or has too much to do. A verdict on the image (not found, denied, damaged) is an answer.
fn is_away(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. }
        | ClientError::UnknownHost { .. }
        | ClientError::RateLimited { .. } => true,
        ClientError::Failed { .. } => error.is_retryable(),
        _ => false,
    }
}

fn silence(reference: &Reference) -> String {
    format!(
        "{} did not resolve {reference} within {} s",
        reference.registry(),
        WHERE_KNOWN.as_secs()
    )
}

fn found(image: ResolvedImage) -> FoundImage {
    FoundImage {
        reference: image.reference,
        image_index: image.index_digest.zip(image.index_bytes),
        platform: None,
        manifest_digest: image.manifest_digest,
        media_type: image.manifest_media_type,
        manifest_bytes: image.manifest_bytes,
        config_bytes: image.config_bytes,
        layers: image.manifest.layers,
        diff_ids: image.config.rootfs.diff_ids,
        offline: false,
        is_part: false,
        user: None,
    }
}

/// The image as a record has it; `None` when the record is not what its digest says.
fn from_record(reference: Reference, record: &ImageRecord, offline: bool) -> Option<FoundImage> {
    let manifest_bytes = Bytes::from(record.manifest.clone().into_bytes());
    let config_bytes = Bytes::from(record.config.clone().into_bytes());
    let manifest = parse_manifest(&manifest_bytes, &record.media_type)?;
    let sound = Digest::of(&manifest_bytes) == record.manifest_digest
        && Digest::of(&config_bytes) == manifest.config.digest;
    let config = ImageConfig::parse(&config_bytes).ok()?;
    // An image index on the way may bind indexes, and any user who may move a tag may have made the last one that led
    // here. So a digest counts as the way only when it is the very one that was named.
    let index = match reference.digest() {
        None => record.indexes.get(&reference.to_string()).copied(),
        Some(named) if named == record.manifest_digest => None,
        Some(named) => record
            .references
            .contains(&reference.to_string())
            .then_some(named),
    };
    sound.then(|| FoundImage {
        reference,
        image_index: index.map(|digest| (digest, Bytes::new())),
        platform: None,
        manifest_digest: record.manifest_digest,
        media_type: record.media_type.clone(),
        manifest_bytes,
        config_bytes,
        layers: manifest.layers,
        diff_ids: config.rootfs.diff_ids,
        offline,
        is_part: false,
        user: record.user.clone(),
    })
}
