//! The recordings that this host keeps, of all images: for `xebec record --list` and `--rm`. No registry is asked.

use serde::Serialize;
use xebec_format::digest::Digest;
use xebec_images::record::ImageRecord;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_trust::{Naming, Policy, RepositoryName};

use crate::recording_store::KeptRecording;
use crate::recordings::Recordings;
use crate::summary::{RecordedService, judged, recorded};

/// Fewest digits of a recording's digest by which it can be named.
const SHORTEST: usize = 6;

/// The recordings that this host keeps of one image.
#[derive(Clone, Debug, Serialize)]
pub struct KeptImage {
    /// The image's names on this host; none when it was forgotten.
    pub references: Vec<String>,
    /// Its manifest.
    pub manifest: Digest,
    /// The services that were recorded.
    pub services: Vec<RecordedService>,
}

/// A recording that was removed from this host.
#[derive(Clone, Debug, Serialize)]
pub struct RemovedRecording {
    /// Its name: the digest of its artifact, or of the recording if it was never pushed.
    pub recording: Digest,
    /// The image's manifest.
    pub manifest: Digest,
    /// The repository in which it still is, if it was pushed or came from there.
    pub repository: Option<String>,
}

impl Recordings {
    /// The recordings that this host keeps, by image.
    ///
    /// # Errors
    /// When the policy cannot be read.
    pub fn kept_images(&self) -> Result<Vec<KeptImage>, Failure> {
        let policy = self.images.policy()?;
        let images = self.kept.images().into_iter().map(|manifest| {
            let record = self.images.records().get(manifest);
            let kept = self.kept.list(manifest).into_iter();
            let services = kept.flat_map(|kept| kept_services(&kept, record.as_ref(), &policy));
            KeptImage {
                manifest,
                services: services.collect(),
                references: record.map_or_else(Vec::new, |record| record.references.into_iter().collect()),
            }
        });
        Ok(images.filter(|image| !image.services.is_empty()).collect())
    }

    /// Removes recordings from this host: the one of that digest, or the first digits of it, or all of an image.
    ///
    /// # Errors
    /// When there are none, when several begin so, or when one cannot be removed.
    pub fn remove(&self, name: &str) -> Result<Vec<RemovedRecording>, Failure> {
        let chosen = self.choose(name)?;
        let removed = chosen.into_iter().map(|(manifest, kept)| {
            self.kept.remove(manifest, kept.name)?;
            let record = self.images.records().get(manifest);
            Ok(RemovedRecording {
                recording: kept.name,
                manifest,
                repository: record.filter(|_| kept.is_pushed()).and_then(|record| {
                    let reference: Reference = record.references.first()?.parse().ok()?;
                    Some(reference.repository().to_string())
                }),
            })
        });
        removed.collect()
    }

    fn choose(&self, name: &str) -> Result<Vec<(Digest, KeptRecording)>, Failure> {
        let digits = name.strip_prefix("sha256:").unwrap_or(name);
        let is_digest = digits.len() >= SHORTEST && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let all = || {
            let images = self.kept.images().into_iter();
            images.flat_map(|manifest| {
                self.kept
                    .list(manifest)
                    .into_iter()
                    .map(move |kept| (manifest, kept))
            })
        };
        if is_digest {
            let mut found: Vec<_> = all()
                .filter(|(_, kept)| kept.name.hex().starts_with(digits))
                .collect();
            found.sort_by_key(|(_, kept)| kept.name);
            let several = found.windows(2).any(|two| match two {
                [one, other] => one.1.name != other.1.name,
                _ => false,
            });
            if several {
                let message = format!("several recordings begin with {digits}; give more digits");
                return Err(Failure::new(FailureKind::Usage, message));
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let found: Vec<_> = match self.manifest_of(name) {
            Some(manifest) => all().filter(|(of, _)| *of == manifest).collect(),
            None => Vec::new(),
        };
        match found.is_empty() {
            false => Ok(found),
            true => Err(Failure::new(
                FailureKind::NotFound,
                format!(
                    "this host keeps no recording {name}, and none of an image of that name; `xebec record --list` lists those \
                     that it keeps"
                ),
            )),
        }
    }

    /// The manifest of an image by its name on this host, or by its digest.
    fn manifest_of(&self, name: &str) -> Option<Digest> {
        if let Ok(manifest) = name.parse::<Digest>() {
            return Some(manifest);
        }
        let reference: Reference = name.parse().ok()?;
        let by_name = self.images.records().find(&reference.to_string());
        by_name
            .map(|record| record.manifest_digest)
            .or(reference.digest())
    }
}

/// The services of a recording, with what it rests on for the image by its first name.
fn kept_services(
    kept: &KeptRecording,
    record: Option<&ImageRecord>,
    policy: &Policy,
) -> Vec<RecordedService> {
    let reference = record.and_then(|record| record.references.first()?.parse::<Reference>().ok());
    let repository = reference
        .as_ref()
        .and_then(|reference| RepositoryName::new(reference.registry(), reference.repository().name()).ok());
    let root = reference.zip(repository).map(|(reference, repository)| {
        let naming = Naming::of(reference.digest().is_some());
        kept.evidence.root(policy, &repository, naming)
    });
    let services = kept.recording.services.iter();
    let services = services.map(|service| {
        let service = RecordedService {
            kept: true,
            in_registry: kept.is_pushed(),
            ..recorded(&kept.recording, service, kept.name, kept.evidence.own)
        };
        match &root {
            Some(root) => judged(service, root),
            None => service,
        }
    });
    services.collect()
}
