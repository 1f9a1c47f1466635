//! The recordings that this host keeps, of all images: for `xebec record --list` and `--rm`. No registry is asked.

use std::collections::BTreeSet;

use serde::Serialize;
use xebec_format::digest::Digest;
use xebec_images::facts::repository_name;
use xebec_images::lookup::by_first_digits;
use xebec_images::record::ImageRecord;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_trust::{Naming, Policy};

use crate::recording_store::KeptRecording;
use crate::recordings::Recordings;
use crate::summary::{RecordedService, judged, recorded};

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
        let images = self.kept.images();
        let all = images.iter().flat_map(|manifest| {
            let kept = self.kept.list(*manifest).into_iter();
            kept.map(move |kept| (*manifest, kept))
        });
        let all: Vec<(Digest, KeptRecording)> = all.collect();
        // A recording may be kept of several images.
        let names: BTreeSet<Digest> = all.iter().map(|(_, kept)| kept.name).collect();
        let recording = by_first_digits(names, name, "recordings", |name| *name, Digest::to_string)?;
        let found: Vec<_> = match recording {
            Some(recording) => all
                .into_iter()
                .filter(|(_, kept)| kept.name == recording)
                .collect(),
            None => {
                let manifest = self.manifest_of(name, &images)?;
                all.into_iter().filter(|(of, _)| Some(*of) == manifest).collect()
            }
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

    /// The manifest of an image by a name that it has on this host; of one that was forgotten, by its digest.
    fn manifest_of(&self, name: &str, kept: &[Digest]) -> Result<Option<Digest>, Failure> {
        if let Some(record) = self.images.records().named(name)? {
            return Ok(Some(record.manifest_digest));
        }
        let reference = name.parse::<Reference>().ok();
        match reference.and_then(|reference| reference.digest()) {
            Some(manifest) => Ok(Some(manifest)),
            None => by_first_digits(
                kept.iter().copied(),
                name,
                "images",
                |name| *name,
                Digest::to_string,
            ),
        }
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
        .and_then(|reference| repository_name(reference.repository()).ok());
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_protocol::paths::Paths;

    use super::*;
    use crate::earlier::tests::record;

    #[test]
    fn recordings_are_listed_by_image_and_removed_by_digest_or_image() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let recordings = Recordings::open(&Paths::create(&at("root"), &at("run")).unwrap()).unwrap();
        let web = record(&recordings, b"web", "r.example/web:1", "nginx -g", 100);
        let db = record(&recordings, b"db", "r.example/db:1", "postgres", 200);
        let listed = || {
            let mut listed: Vec<_> = recordings
                .kept_images()
                .unwrap()
                .into_iter()
                .map(|image| (image.references.concat(), image.services[0].words()))
                .collect();
            listed.sort();
            listed
        };
        let (of_db, of_web) = (("r.example/db:1", "postgres"), ("r.example/web:1", "nginx -g"));
        let owned = |one: (&str, &str)| (one.0.to_owned(), one.1.to_owned());
        assert_eq!(listed(), [owned(of_db), owned(of_web)]);
        let missing = recordings.remove("r.example/nosuch:1").unwrap_err();
        assert_eq!(missing.kind, FailureKind::NotFound);
        assert!(missing.message.contains("`xebec record --list`"), "{missing}");
        // By the first digits that `record --list` prints.
        let name = recordings.kept.list(web)[0].name;
        let removed = recordings.remove(&name.short()).unwrap();
        assert_eq!((removed.len(), removed[0].manifest), (1, web));
        assert_eq!(
            removed[0].repository.as_deref(),
            Some("r.example/web"),
            "it came from there"
        );
        assert_eq!(listed(), [owned(of_db)]);
        assert_eq!(recordings.remove("r.example/db:1").unwrap()[0].manifest, db);
        assert!(listed().is_empty());
    }
}
