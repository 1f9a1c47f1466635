//! Describes the runtime images of an image, for `xebec inspect --runtime-image`.

use std::collections::BTreeMap;

use serde::Serialize;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{Recording, Service, wanted};
use xebec_images::images::Report;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::ImageRequest;
use xebec_trust::{Refusal, Root};

use crate::recordings::Recordings;

/// The runtime images of an image.
#[derive(Clone, Debug, Serialize)]
pub struct RuntimeImages {
    /// The image.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// Size of its layers, compressed, in bytes.
    pub image_bytes: u64,
    /// The services that were recorded, newest first, and then those that are predicted.
    pub services: Vec<RecordedService>,
}

/// A service that was recorded.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedService {
    /// The recording that it is in: its artifact, or the digest of one that this host keeps for itself.
    pub recording: Digest,
    /// Whether this host made it.
    pub own: bool,
    /// Whether this host keeps it.
    pub kept: bool,
    /// Whether it is in the registry, or was when this host last had to do with it there.
    pub in_registry: bool,
    /// Its trust, in a word as tables have it: `own` for one that this host made, a root of trust, or `refused`. None of an
    /// image that has no name here any more.
    pub trust: Option<String>,
    /// The root of trust that it rests on, which is `bound` for one that this host made; none when it may not be used. Scripts of
    /// the version before read it: new ones read `trust`.
    pub root: Option<Root>,
    /// Why it may not be used.
    pub refused: Option<String>,
    /// Its command line.
    pub argv: Vec<String>,
    /// Variables that tell it from others.
    pub env: BTreeMap<String, String>,
    /// How it was known that its start was over.
    pub probe: String,
    /// Whether no host has run it: its pages are predicted from a recording of an earlier version of the image.
    pub predicted: bool,
    /// When it was recorded, in seconds since 1970; of a predicted one, when that earlier recording was made.
    pub recorded: u64,
    /// How often it was run.
    pub runs: u8,
    /// Pages that it touched.
    pub pages: u64,
    /// Pages among them that each run touched.
    pub steady_pages: u64,
    /// Bytes that a start fetches that has none of them: the segments that hold them, compressed.
    pub stored_bytes: u64,
}

impl RecordedService {
    /// Its variables and its command line, for people.
    pub fn words(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = env.chain(self.argv.iter().cloned()).collect();
        words.join(" ")
    }
}

impl Recordings {
    /// The runtime images of an image, kept here or in its registry.
    ///
    /// # Errors
    /// When the image cannot be resolved or the registry does not answer.
    pub async fn runtime_images(
        &self,
        request: &ImageRequest,
        report: &Report,
    ) -> Result<RuntimeImages, Failure> {
        self.summary(request, false, report).await
    }

    /// The same; the recordings that may be used are kept on this host, so that each start finds its own.
    ///
    /// # Errors
    /// As those of [`Self::runtime_images`], and when the disk does not take them.
    pub async fn keep_runtime_images(
        &self,
        request: &ImageRequest,
        report: &Report,
    ) -> Result<RuntimeImages, Failure> {
        self.summary(request, true, report).await
    }

    async fn summary(
        &self,
        request: &ImageRequest,
        keep: bool,
        report: &Report,
    ) -> Result<RuntimeImages, Failure> {
        let found = self.images.resolve(request, report).await?;
        let mut services = Vec::new();
        let here: Vec<Digest> = self
            .kept
            .list(found.manifest_digest)
            .iter()
            .map(|kept| kept.name)
            .collect();
        for (kept, root) in self.listed_recordings(request, &found, keep).await? {
            services.extend(kept.recording.services.iter().map(|service| {
                let service = RecordedService {
                    kept: here.contains(&kept.name),
                    in_registry: kept.is_pushed(),
                    ..recorded(&kept.recording, service, kept.name, kept.evidence.own)
                };
                judged(service, &root)
            }));
        }
        services.sort_by_key(|service| (service.predicted, std::cmp::Reverse(service.recorded)));
        Ok(RuntimeImages {
            reference: found.reference.to_string(),
            manifest: found.manifest_digest,
            image_bytes: found.layers.iter().map(|layer| layer.size).sum(),
            services,
        })
    }
}

/// A service of a recording that rests on that, or is refused.
pub(super) fn judged(service: RecordedService, root: &Result<Root, Refusal>) -> RecordedService {
    let (root, refused) = match root {
        Ok(root) => (Some(*root), None),
        Err(refusal) => (None, Some(refusal.to_string())),
    };
    let trust = match root {
        None => "refused".to_owned(),
        Some(_) if service.own => "own".to_owned(),
        Some(root) => root.to_string(),
    };
    RecordedService {
        trust: Some(trust),
        root,
        refused,
        ..service
    }
}

pub(super) fn recorded(recording: &Recording, service: &Service, name: Digest, own: bool) -> RecordedService {
    let pages = |steady: bool| {
        let counted = service
            .touched
            .iter()
            .filter(|seen| !steady || seen.seen == service.runs);
        counted.map(|seen| u64::from(seen.run.pages)).sum()
    };
    let segments = wanted(recording, service, |_| true);
    let lengths = segments
        .iter()
        .filter_map(|number| recording.segments.get(*number));
    RecordedService {
        recording: name,
        own,
        kept: false,
        in_registry: false,
        trust: None,
        root: None,
        refused: None,
        argv: service.key.argv.clone(),
        env: service.key.env.clone(),
        probe: service.probe.clone(),
        predicted: service.is_predicted(),
        recorded: service.recorded,
        runs: service.runs,
        pages: pages(false),
        steady_pages: pages(true),
        stored_bytes: lengths.map(|segment| u64::from(segment.length)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_the_same_word_as_people() {
        let service = |own| RecordedService {
            recording: Digest::of(b"recording"),
            own,
            kept: true,
            in_registry: false,
            trust: None,
            root: None,
            refused: None,
            argv: Vec::new(),
            env: BTreeMap::new(),
            probe: String::new(),
            predicted: false,
            recorded: 0,
            runs: 1,
            pages: 0,
            steady_pages: 0,
            stored_bytes: 0,
        };
        for (own, root, word) in [
            (true, Root::Bound, "own"),
            (false, Root::Bound, "bound"),
            (false, Root::Signed, "signed"),
        ] {
            let judged = judged(service(own), &Ok(root));
            let told = serde_json::to_value(&judged).unwrap();
            assert_eq!(told["trust"], word);
            assert_eq!(judged.root, Some(root));
        }
    }
}
