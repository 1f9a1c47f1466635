//! What an artifact of ours carries, as a registry reads it that answers starts.

use std::collections::HashMap;

use xebec_format::digest::Digest;
use xebec_format::runtime_image::Recording;
use xebec_oci::{Descriptor, Manifest};

use crate::artifact::{ARTIFACT_TYPE, Artifact, BlobRef};
use crate::recording::{self, RUNTIME_IMAGE_TYPE};

/// A recording that takes more memory is left out, in bytes. A host that wants it reads it by itself.
const LARGEST: u64 = 16 << 20;
/// The memory that a layer's indexes take in a list, about.
const LISTED: u64 = 1024;

/// What an artifact carries.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// The recording.
    pub recording: Option<Recording>,
    /// Where the recording is, if it is not in the manifest.
    pub apart: Option<BlobRef>,
    /// The indexes that it lists.
    pub indexes: Artifact,
    /// What it embeds beside the recording: the image's configuration.
    embedded: HashMap<Digest, Vec<u8>>,
}

impl Carried {
    /// Reads the manifest of an artifact that refers to `subject`. One that is something else, or cannot be read, carries nothing.
    pub fn read(manifest: Manifest, subject: Digest) -> Self {
        let mut carried = Self::default();
        let Manifest::Image(image) = &manifest else {
            return carried;
        };
        let embedding: Vec<Descriptor> = image
            .layers
            .iter()
            .filter(|layer| layer.data.is_some())
            .cloned()
            .collect();
        match image.artifact_type.as_deref() {
            Some(ARTIFACT_TYPE) => carried.indexes = Artifact::decode(manifest, subject).unwrap_or_default(),
            Some(RUNTIME_IMAGE_TYPE) => {
                let Ok(descriptor) = recording::decode(manifest, subject) else {
                    return carried;
                };
                let others = embedding.iter().filter(|other| other.digest != descriptor.digest);
                let others = others.filter_map(|other| Some((other.digest, other.embedded()?)));
                carried.embedded = others.collect();
                match descriptor.embedded() {
                    Some(bytes) => carried.take_recording(&bytes, subject),
                    // Only this much: a descriptor may have much more with it that nobody wants.
                    None => {
                        carried.apart = Some(BlobRef {
                            digest: descriptor.digest,
                            size: descriptor.size,
                        });
                    }
                }
            }
            _ => {}
        }
        carried
    }

    /// Reads the recording that the manifest names.
    pub fn take_recording(&mut self, bytes: &[u8], subject: Digest) {
        let recording = Recording::decode(bytes).ok();
        let is_fitting =
            |recording: &Recording| recording.image == subject && memory_of(recording) <= LARGEST;
        self.recording = recording.filter(is_fitting);
    }

    /// What it embeds under this digest.
    pub fn embedded(&self, digest: &Digest) -> Option<&[u8]> {
        self.embedded.get(digest).map(Vec::as_slice)
    }

    /// The bytes that this takes in memory, about.
    pub fn memory(&self) -> u64 {
        let embedded: usize = self.embedded.values().map(Vec::len).sum();
        let recording = self.recording.as_ref().map_or(0, memory_of);
        embedded as u64 + self.indexes.layers.len() as u64 * LISTED + recording
    }
}

fn memory_of(recording: &Recording) -> u64 {
    let runs: usize = recording.segments.iter().map(|segment| segment.runs.len()).sum();
    let services = recording.services.iter().map(|service| {
        let key = &service.key;
        let words = key.argv.iter().chain(key.env.keys()).chain(key.env.values());
        let texts = words.map(|word| word.len() + 48).sum::<usize>();
        texts + service.probe.len() + service.recorder.len() + 200 + service.touched.len() * 24
    });
    let tables = recording.segments.len() * 96 + (recording.layers.len() + recording.zones.len()) * 80;
    let rest = (runs + recording.zeros.len()) * 16 + recording.indexes.len() * 24;
    (services.sum::<usize>() + tables + rest) as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_format::runtime_image::{PageRun, RecordedLayer, SeenRun, Service, ServiceKey};
    use xebec_oci::media_type::OCI_CONFIG;

    use super::*;

    fn recording(image: &[u8], runs: u32) -> Recording {
        let touched = (0..runs).map(|number| SeenRun {
            run: PageRun {
                layer: 0,
                first: u64::from(number) * 2,
                pages: 1,
            },
            seen: 1,
        });
        let touched: Vec<SeenRun> = touched.collect();
        let service = Service {
            key: ServiceKey {
                argv: vec!["serve".to_owned()],
                env: Default::default(),
            },
            probe: String::new(),
            recorded: 1,
            runs: 1,
            recorder: String::new(),
            touched: touched.clone(),
        };
        let layer = RecordedLayer {
            layer: Digest::of(b"layer"),
            index: Digest::of(b"index"),
            data_size: 4096 * 2 * u64::from(runs.max(1)),
        };
        Recording {
            image: Digest::of(image),
            layers: vec![layer],
            services: vec![service],
            zeros: touched.iter().map(|seen| seen.run).collect(),
            zones: Vec::new(),
            segments: Vec::new(),
            indexes: Vec::new(),
        }
    }

    fn carried(recording: &Recording) -> Carried {
        let subject = Descriptor::of(OCI_CONFIG, b"image");
        let config = Descriptor::embedding(OCI_CONFIG, b"config");
        let manifest = recording::encode(subject.clone(), &recording.encode(), &[], [config].into_iter());
        Carried::read(Manifest::Image(Box::new(manifest)), subject.digest)
    }

    #[test]
    fn a_recording_and_what_is_beside_it() {
        let carried = carried(&recording(b"image", 3));
        assert_eq!(carried.recording.as_ref().unwrap().services.len(), 1);
        assert!(carried.apart.is_none());
        assert_eq!(carried.embedded(&Digest::of(b"config")).unwrap(), b"config");
        assert_eq!(carried.embedded.len(), 1, "the recording is not kept twice");
    }

    #[test]
    fn a_recording_of_another_image_or_of_too_many_pages_is_left_out() {
        assert!(carried(&recording(b"other", 3)).recording.is_none());
        let large = recording(b"image", 500_000);
        assert!(large.check().is_ok() && memory_of(&large) > LARGEST);
        let mut carried = carried(&large);
        carried.take_recording(&large.encode(), large.image);
        assert!(carried.recording.is_none());
        assert!(carried.memory() < 100_000);
    }

    #[test]
    fn what_is_no_artifact_of_ours_carries_nothing() {
        let subject = Digest::of(b"image");
        let mut manifest = recording::encode(
            Descriptor::of(OCI_CONFIG, b"image"),
            &recording(b"image", 1).encode(),
            &[],
            std::iter::empty(),
        );
        manifest.artifact_type = Some("application/other".to_owned());
        let carried = Carried::read(Manifest::Image(Box::new(manifest)), subject);
        assert!(carried.recording.is_none() && carried.apart.is_none() && carried.memory() == 0);
    }
}
