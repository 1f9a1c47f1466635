//! Which image's lazy layers a container gets when its image has another name than the one for which its layers were admitted.
//!
//! An admission for a tag does not count for a digest, and an admission for one image does not count for a user who wants
//! another one. So the daemon finds the image that the container names, first on this host, then in its registry, and
//! judges its layers for that name. Layers that are not admitted are refused, or read whole and proven, as the settings say.
//!
//! Layers that this host has proven count for their chain ID whatever the image is called, so no registry is asked about them.
//! An image that is only on this host (committed, built, tagged) is admitted only on proven layers: the layers below it came by
//! another name, and containerd does not say whether a name was made here or pulled.

use tracing::info;
use xebec_format::digest::Digest;
use xebec_images::admission::Admission;
use xebec_oci::{Manifest, Platform, Reference};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::settings::Unproven;
use xebec_protocol::wire::{ImagePart, Reply};
use xebec_snapshotter::containerd::owners::ContainerImage;
use xebec_snapshotter::lazy::Reason;
use xebec_snapshotter::record::LazyLayer;
use xebec_snapshotter::{ErrorKind, SnapshotError};

use super::admission_cache::Asker;
use super::lazy::{Layers, quietly};

/// The image of a container.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    reference: Reference,
    /// The manifest for this platform, if that is known.
    manifest: Option<Digest>,
}

impl Named {
    /// # Errors
    /// Why that name cannot be read. containerd takes more than registries do, digests by other algorithms among it.
    fn of(image: &ContainerImage, layer: &LazyLayer) -> Result<Self, String> {
        let reference = match image.name.parse::<Digest>() {
            // It is the digest of the image's configuration, which names its layers.
            Ok(_) => as_by_digest(layer)
                .ok_or_else(|| format!("{} at {} names no image", layer.reference, layer.manifest))?,
            Err(_) => {
                let named = image.name.parse();
                named.map_err(|error| format!("{error}"))?
            }
        };
        let target = image.digest.as_ref().and_then(|digest| digest.parse().ok());
        let target = reference.digest().or(target);
        let manifest = target.and_then(|target| manifest_of(target, image.document.as_deref(), layer));
        Ok(Self { reference, manifest })
    }

    /// Whether it means no more than the name for which the layers were admitted: a tag of the same repository.
    fn is_near(&self, layer: &LazyLayer) -> bool {
        let admitted = layer.reference.parse::<Reference>();
        !self.reference.is_by_digest()
            && admitted.is_ok_and(|admitted| admitted.repository() == self.reference.repository())
    }

    fn is_what_was_let_in(&self, layer: &LazyLayer) -> bool {
        let admitted = layer.reference.parse::<Reference>();
        let is_same = admitted.is_ok_and(|admitted| admitted.to_string() == self.reference.to_string());
        let is_there = |manifest: Digest| manifest.to_string() == layer.manifest;
        (is_same || self.is_near(layer)) && self.manifest.is_none_or(is_there)
    }
}

/// An image as which layers are to be shown.
struct Wanted<'a> {
    named: Named,
    name: String,
    /// The layers' chain ID.
    chain: &'a str,
    /// The uppermost of them, as it was admitted.
    layer: &'a LazyLayer,
}

impl Wanted<'_> {
    fn as_its_own(&self, manifest: Digest) -> LazyLayer {
        LazyLayer {
            reference: self.name.clone(),
            manifest: manifest.to_string(),
            ..self.layer.clone()
        }
    }
}

/// A layer's image by its digest, in the repository for which the layer was admitted.
fn as_by_digest(layer: &LazyLayer) -> Option<Reference> {
    let admitted: Reference = layer.reference.parse().ok()?;
    Some(admitted.repository().at(layer.manifest.parse().ok()?))
}

/// The manifest that a digest leads to, of which the document is at hand or not.
fn manifest_of(target: Digest, document: Option<&[u8]>, layer: &LazyLayer) -> Option<Digest> {
    let shown = layer.manifest.parse().ok();
    if Some(target) == shown {
        return shown;
    }
    let document = document.filter(|document| Digest::of(document) == target)?;
    match Manifest::parse(document, None).ok()? {
        Manifest::Image(_) => Some(target),
        Manifest::Index(index) => {
            let mut listed = index.manifests.iter().map(|entry| entry.digest);
            match shown.filter(|shown| listed.any(|listed| listed == *shown)) {
                Some(shown) => Some(shown),
                None => index.select(&Platform::host()).map(|entry| entry.digest),
            }
        }
    }
}

impl Layers {
    /// See [`xebec_snapshotter::LazyImages::own`].
    pub(super) async fn find_own(
        &self,
        image: &ContainerImage,
        chain: &str,
        layer: &LazyLayer,
    ) -> Result<LazyLayer, SnapshotError> {
        // There is a container, but of no image.
        if image.name.is_empty() {
            return Ok(layer.clone());
        }
        let named = match Named::of(image, layer) {
            Ok(named) => named,
            Err(unreadable) => {
                let reason = format!("its image's name is not understood: {unreadable}");
                return self
                    .only_proven(&format!("{:?}", image.name), chain, layer, &reason)
                    .await;
            }
        };
        if named.is_what_was_let_in(layer) {
            return Ok(layer.clone());
        }
        if let Ok(id) = image.name.parse::<Digest>()
            && !self.has_id(id, image, layer).await
        {
            let reason = "its image has another configuration, or other blobs";
            return self.only_proven(&image.name, chain, layer, reason).await;
        }
        let wanted = Wanted {
            name: named.reference.to_string(),
            named,
            chain,
            layer,
        };
        self.find_as(&wanted).await
    }

    /// The layers as those of the wanted image, if it is vouched for, here or by its registry, or if it can be proven.
    async fn find_as(&self, wanted: &Wanted<'_>) -> Result<LazyLayer, SnapshotError> {
        let (chain, layer) = (wanted.chain, wanted.layer);
        if let Some(known) = self.find_known(wanted).await {
            return Ok(known);
        }
        let manifest = wanted.named.manifest.map(|manifest| manifest.to_string());
        let asked = (wanted.name.clone(), manifest.clone(), chain.to_owned());
        let is_near = wanted.named.is_near(layer);
        if is_near && self.has_fallen_back(&asked) {
            return Ok(layer.clone());
        }
        let refused = match self.ask(wanted, manifest.as_deref()).await {
            Ok(found) => return Ok(found),
            Err(refused) => refused,
        };
        if is_near {
            // A user who may push one tag may push all tags of the repository.
            self.fell_back(asked);
            return Ok(layer.clone());
        }
        // The user may follow the error's advice before the next call, so that call must look again.
        self.forget(&wanted.name, manifest.as_deref());
        if self.services.unproven == Unproven::Prove
            && let Some(proven) = self.prove_wanted(wanted, &refused).await?
        {
            return Ok(proven);
        }
        let kind = match refused.is_away {
            true => ErrorKind::Unavailable,
            false => ErrorKind::FailedPrecondition,
        };
        Err(unlike(&wanted.name, layer, &refused.reason, kind))
    }

    /// The layers if this host has proven them, for an image that nothing else can vouch for.
    async fn only_proven(
        &self,
        name: &str,
        chain: &str,
        layer: &LazyLayer,
        reason: &str,
    ) -> Result<LazyLayer, SnapshotError> {
        let proven = self.proven(chain, layer).await;
        proven.ok_or_else(|| unlike(name, layer, reason, ErrorKind::FailedPrecondition))
    }

    /// The layers as those of the wanted image, by the facts that this host has.
    async fn find_known(&self, wanted: &Wanted<'_>) -> Option<LazyLayer> {
        let (chain, layer) = (wanted.chain, wanted.layer);
        if let Some(manifest) = wanted.named.manifest
            && self
                .is_vouched_for(&wanted.name, manifest, chain, layer.depth)
                .await
        {
            return Some(wanted.as_its_own(manifest));
        }
        self.proven(chain, layer).await
    }

    /// The layers as those of the wanted image, by the answers of its registry; else why not.
    async fn ask(&self, wanted: &Wanted<'_>, manifest: Option<&str>) -> Result<LazyLayer, Refused> {
        match self.find(Asker::Other, &wanted.name, manifest).await {
            Ok(admission) => match refusal(&admission, wanted.chain, wanted.layer.depth) {
                None => Ok(wanted.as_its_own(admission.manifest)),
                Some(refused) => Err(Refused {
                    manifest: Some(admission.manifest),
                    ..refused
                }),
            },
            Err(not_lazy) => Err(Refused {
                is_away: not_lazy.reason == Reason::Unreachable,
                ..Refused::because(not_lazy.detail)
            }),
        }
    }

    /// Reads the layers whole, as those of the wanted image or as those that are shown, and proves them.
    async fn prove_wanted(
        &self,
        wanted: &Wanted<'_>,
        refused: &Refused,
    ) -> Result<Option<LazyLayer>, SnapshotError> {
        let (name, layer) = (&wanted.name, wanted.layer);
        info!(
            "{name}: {}; Xebec reads its layers whole and proves them",
            refused.reason
        );
        if let (true, Some(manifest)) = (refused.can_be_proven, refused.manifest) {
            match self.prove(name, manifest, layer.depth).await {
                Ok(()) => return Ok(Some(wanted.as_its_own(manifest))),
                Err(failure) => info!("{name}: {failure}"),
            }
        }
        // The image is not where its name says, or another one by now: it may be on this host only.
        if let (Some(shown), Ok(manifest)) = (as_by_digest(layer), layer.manifest.parse()) {
            let shown = shown.to_string();
            let proven = self.prove(&shown, manifest, layer.depth).await;
            proven.map_err(|failure| unlike(name, layer, &failure.to_string(), ErrorKind::Unavailable))?;
        }
        Ok(self.proven(wanted.chain, layer).await)
    }

    /// See [`xebec_snapshotter::LazyImages::holds_for_all`]. A binding or a signature of one image says nothing of another image's
    /// layers, so only a proof will do.
    pub(super) async fn holds(&self, chain: &str, layer: &LazyLayer) -> bool {
        self.proven(chain, layer).await.is_some()
    }

    /// The layers up to and with `layer`, as those of their image's digest, if this host has proven that they have the chain ID.
    /// Then they are those of every image that has the chain.
    async fn proven(&self, chain: &str, layer: &LazyLayer) -> Option<LazyLayer> {
        let name = as_by_digest(layer)?.to_string();
        let manifest = layer.manifest.parse().ok()?;
        let (judged, are_proven) = self.judge(&name, manifest, layer.depth).await?;
        (are_proven && judged.to_string() == chain).then(|| LazyLayer {
            reference: name,
            ..layer.clone()
        })
    }

    /// Whether the image for which a layer was admitted has this ID, and containerd's image is that one. An ID names a
    /// configuration. That fixes the contents of the layers, but not their blobs: another manifest may list others.
    async fn has_id(&self, id: Digest, image: &ContainerImage, layer: &LazyLayer) -> bool {
        let Ok(shown) = layer.manifest.parse::<Digest>() else {
            return false;
        };
        let target = image.digest.as_ref().and_then(|digest| digest.parse().ok());
        let leads = target.and_then(|target| manifest_of(target, image.document.as_deref(), layer));
        if leads.is_some_and(|manifest| manifest != shown) {
            return false;
        }
        let records = self.services.images.records().clone();
        let config = move || {
            let record = records.get(shown)?;
            Some(Digest::of(record.config.as_bytes()))
        };
        matches!(self.services.background.run(config).await, Ok(Some(config)) if config == id)
    }

    async fn is_vouched_for(&self, name: &str, manifest: Digest, chain: &str, depth: u32) -> bool {
        let judged = self.judge(name, manifest, depth).await;
        judged.is_some_and(|(judged, _)| judged.to_string() == chain)
    }

    /// The chain ID of a manifest's lowest layers, if this host knows them and their root of trust suffices for that name; and
    /// whether it has proven them.
    async fn judge(&self, name: &str, manifest: Digest, depth: u32) -> Option<(Digest, bool)> {
        let request = self.services.request(name, None);
        let layers = usize::try_from(depth).ok()?;
        let images = self.services.images.clone();
        let judged = self
            .services
            .background
            .run(move || images.judge_known(&request, manifest, layers));
        judged.await.ok()?.ok()?
    }

    /// Reads layers whole that nothing vouches for, so that this host knows their contents. A client that gives up waiting changes
    /// nothing of that; the next one waits for it.
    async fn prove(&self, name: &str, manifest: Digest, layers: u32) -> Result<(), Failure> {
        let part = ImagePart { manifest, layers };
        let request = self.services.request(name, Some(part));
        let (pulls, proving) = (self.services.pulls.clone(), self.proving.clone());
        let proven = tokio::spawn(async move {
            let _one = proving.lock().await;
            match Box::pin(pulls.prove_image(&request, &quietly())).await? {
                Reply::Proved { layers } => match layers.into_iter().find_map(|layer| layer.problem) {
                    Some(problem) => Err(Failure::new(FailureKind::Integrity, problem)),
                    None => Ok(()),
                },
                _ => Ok(()),
            }
        });
        proven
            .await
            .map_err(|error| Failure::host("prove an image's layers", error))?
    }
}

/// Why an image's layers are not shown.
struct Refused {
    reason: String,
    is_away: bool,
    manifest: Option<Digest>,
    can_be_proven: bool,
}

impl Refused {
    fn because(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_away: false,
            manifest: None,
            can_be_proven: false,
        }
    }
}

/// Why the lowest layers of an image are not those of a chain, or may not be used.
fn refusal(admission: &Admission, chain: &str, depth: u32) -> Option<Refused> {
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    let layers = admission.layers.get(..depth);
    let is_it = |layers: &&[xebec_images::admission::AdmittedLayer]| {
        layers
            .last()
            .is_some_and(|layer| layer.chain.to_string() == chain)
    };
    let Some(layers) = layers.filter(is_it) else {
        return Some(Refused::because("its layers are others by now"));
    };
    let missing = layers.iter().find_map(|layer| layer.not_lazy.as_ref())?;
    Some(Refused {
        can_be_proven: true,
        ..Refused::because(&missing.reason)
    })
}

fn unlike(name: &str, layer: &LazyLayer, reason: &str, kind: ErrorKind) -> SnapshotError {
    // That name leads to them in any case; the image's own may be known to no registry.
    let shown = as_by_digest(layer).map_or_else(|| layer.reference.clone(), |shown| shown.to_string());
    let message = format!(
        "a container of {name} is not started on layers that were admitted for {}: {reason}. Prove them on this host \
         (`xebec check --prove {shown}`), accept what vouches for them in trust.toml (docs/trust.md), or let the daemon prove them \
         when they are needed: `unproven = \"prove\"` in [snapshotter] of daemon.toml",
        layer.reference
    );
    SnapshotError::new(kind, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn layer(reference: &str) -> LazyLayer {
        LazyLayer {
            reference: reference.to_owned(),
            manifest: digest("shown").to_string(),
            layer: String::new(),
            depth: 3,
        }
    }

    fn named(name: &str, digest: Option<Digest>, document: Option<&str>) -> Named {
        let image = ContainerImage {
            name: name.to_owned(),
            digest: digest.map(|digest| digest.to_string()),
            document: document.map(|text| text.as_bytes().to_vec()),
        };
        Named::of(&image, &layer("registry.example/app:1")).unwrap()
    }

    fn index(listed: &[(&str, &str)]) -> String {
        let entries = listed.iter().map(|(name, architecture)| {
            format!(
                r#"{{"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1, "digest": "{}",
                     "platform": {{"os": "linux", "architecture": "{architecture}"}}}}"#,
                digest(name)
            )
        });
        let entries: Vec<String> = entries.collect();
        format!(r#"{{"schemaVersion": 2, "manifests": [{}]}}"#, entries.join(","))
    }

    #[test]
    fn names_that_want_nothing_more() {
        let here = layer("registry.example/app:1");
        let shown = digest("shown");
        let listing = index(&[("other", "s390x"), ("shown", "amd64")]);
        assert!(named("registry.example/app:1", None, None).is_what_was_let_in(&here));
        assert!(named("registry.example/app:1", Some(shown), None).is_what_was_let_in(&here));
        assert!(named("registry.example/app:2", Some(shown), None).is_what_was_let_in(&here));
        let by_index = named("registry.example/app:1", Some(digest(&listing)), Some(&listing));
        assert!(by_index.is_what_was_let_in(&here));
        // Another image, or nobody knows.
        assert!(
            !named("registry.example/app:1", Some(digest("x")), Some("x"))
                .is_near(&layer("other.example/app:1"))
        );
        assert!(!named("registry.example/other:1", Some(shown), None).is_what_was_let_in(&here));
        let by_digest = format!("registry.example/app@{shown}");
        assert!(!named(&by_digest, Some(shown), None).is_what_was_let_in(&here));
        let both = format!("registry.example/app:1@{shown}");
        assert!(!named(&both, None, None).is_what_was_let_in(&here));
        assert!(named(&both, None, None).is_what_was_let_in(&layer(&both)));
        // An image's ID.
        let by_id = named(&digest("configuration").to_string(), None, None);
        assert_eq!(by_id.reference.to_string(), by_digest);
        assert!(!by_id.is_what_was_let_in(&here));
    }

    #[test]
    fn names_that_are_not_understood_mean_something() {
        let of = |name: &str| {
            let name = name.to_owned();
            let image = ContainerImage {
                name,
                ..ContainerImage::default()
            };
            Named::of(&image, &layer("registry.example/app:1"))
        };
        let long = format!("registry.example/app@sha512:{}", "ab".repeat(64));
        for name in [
            &*long,
            "registry.example/app@",
            "Registry App",
            "registry.example/app:1@x",
        ] {
            assert!(of(name).is_err(), "{name}");
        }
    }

    #[test]
    fn where_a_digest_leads() {
        let here = layer("registry.example/app:1");
        let lead = |text: &str| manifest_of(digest(text), Some(text.as_bytes()), &here);
        assert_eq!(
            lead(&index(&[("new", "amd64"), ("shown", "arm64")])),
            Some(digest("shown"))
        );
        let architecture = Platform::host().architecture;
        let others = index(&[("s390", "s390x"), ("new", &architecture)]);
        assert_eq!(lead(&others), Some(digest("new")));
        assert_eq!(lead("no JSON"), None);
        assert_eq!(manifest_of(digest("shown"), None, &here), Some(digest("shown")));
        assert_eq!(manifest_of(digest("index"), None, &here), None);
        // A document that does not have its digest counts for nothing.
        assert_eq!(manifest_of(digest("index"), Some(others.as_bytes()), &here), None);
    }
}
