//! An image with a service that was recorded, and answers to starts, taken apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use xebec_artifact::artifact::{Artifact, BlobRef, LayerBlobs};
use xebec_artifact::recording;
use xebec_events::{Event, EventKind, Listener};
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{
    BundledIndex, PageRun, RecordedLayer, Recording, SeenRun, Segment, SegmentDigest, ServiceKey, Zone,
};
use xebec_native::start_answer::{Answer, Head, PREFIX, TYPE, head_size};
use xebec_native::start_request::WordHash;
use xebec_oci::media_type::{OCI_CONFIG, OCI_MANIFEST};
use xebec_oci::{Descriptor, ImageManifest};

use crate::running::Running;

/// The index of the second layer, which no zone has.
const SECOND: &[u8] = b"the index of the second layer";

/// What there is beside the image.
#[derive(Clone, Copy)]
struct Shape {
    /// The recording is in its manifest.
    embeds: bool,
    /// The index of the second layer is listed, and there.
    lists_second: bool,
    /// The bytes of the zone that the service reads of the second layer.
    last: u64,
}

const USUAL: Shape = Shape {
    embeds: true,
    lists_second: false,
    last: 100,
};

/// The hash of a word of a command line, as JSON.
pub(super) fn hash(word: &str) -> Value {
    serde_json::to_value(WordHash::of(word)).unwrap()
}

/// An image of two layers. A zone has the index of the first, a page of it, and far behind a page of the second.
pub(super) struct Service {
    pub(super) image: Digest,
    pub(super) layers: [Digest; 2],
    pub(super) config: Vec<u8>,
    pub(super) index: Vec<u8>,
    pub(super) zone: Digest,
    /// Its bytes.
    pub(super) zone_content: Vec<u8>,
    recording: Digest,
    /// The manifests by the references under which they were pushed, those that others refer to first.
    pub(super) manifests: Vec<(String, Vec<u8>)>,
}

impl Service {
    /// With the recording in its manifest.
    pub(super) async fn push(registry: &Running, repository: &str, tag: &str) -> Self {
        Self::push_with(registry, repository, tag, USUAL).await
    }

    /// With the recording in a blob.
    pub(super) async fn push_apart(registry: &Running, repository: &str, tag: &str) -> Self {
        let shape = Shape {
            embeds: false,
            ..USUAL
        };
        Self::push_with(registry, repository, tag, shape).await
    }

    /// With a list of the indexes of both layers.
    pub(super) async fn push_listing_both(registry: &Running, repository: &str, tag: &str) -> Self {
        let shape = Shape {
            lists_second: true,
            ..USUAL
        };
        Self::push_with(registry, repository, tag, shape).await
    }

    /// With a zone of so many bytes, in pieces that the service all reads.
    pub(super) async fn push_large(registry: &Running, repository: &str, tag: &str, bytes: u64) -> Self {
        let shape = Shape { last: bytes, ..USUAL };
        Self::push_with(registry, repository, tag, shape).await
    }

    async fn push_with(registry: &Running, repository: &str, tag: &str, shape: Shape) -> Self {
        let last = shape.last;
        let layers = [&b"one"[..], b"two"]
            .map(|layer| Descriptor::of("application/vnd.oci.image.layer.v1.tar", layer));
        let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers"},
            "config": {"Entrypoint": ["serve"], "Cmd": ["all"]}});
        let config = config.to_string().into_bytes();
        let index = b"the index of the first layer".to_vec();
        let digests = [layers[0].digest, layers[1].digest];
        let image = ImageManifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.to_owned()),
            artifact_type: None,
            config: Descriptor::of(OCI_CONFIG, &config),
            layers: layers.to_vec(),
            subject: None,
            annotations: BTreeMap::new(),
        };
        let image = serde_json::to_vec(&image).unwrap();
        let subject = Descriptor::of(OCI_MANIFEST, &image);
        let zone = zone(&index, last);
        let recorded = recorded(&subject, digests, &index, &zone, last);
        let encoded = recorded.encode();
        assert!(Recording::decode(&encoded).is_ok());
        let embedded = Descriptor::embedding(OCI_CONFIG, &config);
        let mut artifact =
            recording::encode(subject.clone(), &encoded, &recorded.zones, [embedded].into_iter());
        if !shape.embeds {
            artifact.layers[0].data = None;
        }
        let artifact = serde_json::to_vec(&artifact).unwrap();
        let mut listed = Artifact {
            layers: [(digests[0], listed_index(&index))].into(),
        };
        if shape.lists_second {
            listed.layers.insert(digests[1], listed_index(SECOND));
            registry.push_blob(repository, SECOND).await;
        }
        let listed = serde_json::to_vec(&listed.encode(subject.clone(), &digests)).unwrap();
        for blob in [&b"one"[..], b"two", b"{}", &config, &index, &zone, &encoded] {
            registry.push_blob(repository, blob).await;
        }
        let named = |bytes: Vec<u8>| (Digest::of(&bytes).to_string(), bytes);
        let manifests = vec![(tag.to_owned(), image), named(artifact), named(listed)];
        for (reference, manifest) in &manifests {
            let put = registry.request(Method::PUT, &format!("/v2/{repository}/manifests/{reference}"));
            let put = put.header("content-type", OCI_MANIFEST).body(manifest.clone());
            let answer = put.send().await.unwrap();
            assert_eq!(
                answer.status(),
                StatusCode::CREATED,
                "{}",
                answer.text().await.unwrap()
            );
        }
        Self {
            image: subject.digest,
            layers: digests,
            config,
            index,
            zone: Digest::of(&zone),
            zone_content: zone,
            recording: Digest::of(&encoded),
            manifests,
        }
    }

    /// That a host holds these pages of a layer.
    pub(super) fn held(&self, layer: usize, pages: Value) -> Value {
        let index = index_of(layer, &self.index);
        json!({self.layers[layer].to_string(): {"index": index, "pages": pages}})
    }
}

fn listed_index(index: &[u8]) -> LayerBlobs {
    LayerBlobs {
        index: BlobRef {
            digest: Digest::of(index),
            size: index.len() as u64,
        },
        windows: None,
        frame: None,
        contents: None,
    }
}

fn index_of(layer: usize, first: &[u8]) -> Digest {
    match layer {
        0 => Digest::of(first),
        _ => Digest::of(SECOND),
    }
}

fn zone(index: &[u8], last: u64) -> Vec<u8> {
    let mut zone = index.to_vec();
    while zone.len() < 9000 + last as usize {
        zone.push((zone.len() % 251) as u8);
    }
    zone
}

/// The first segment stands behind the index and has 200 bytes; the others stand at 9000 and have 1 MiB at most.
fn recorded(subject: &Descriptor, layers: [Digest; 2], index: &[u8], zone: &[u8], last: u64) -> Recording {
    let run = |layer, first| PageRun {
        layer,
        first,
        pages: 1,
    };
    let segment = |offset: u64, length: u64, run| Segment {
        zone: 0,
        offset,
        length: length as u32,
        digest: SegmentDigest::Sha256(Digest::of(&offset.to_le_bytes())),
        runs: vec![run],
    };
    let mut segments = vec![segment(index.len() as u64, 200, run(0, 0))];
    let mut at = 0;
    while at < last {
        let length = (last - at).min(1 << 20);
        segments.push(segment(9000 + at, length, run(1, segments.len() as u64)));
        at += length;
    }
    let touched = segments.iter().map(|segment| SeenRun {
        run: segment.runs[0],
        seen: 1,
    });
    let mut seen: Vec<SeenRun> = Vec::new();
    touched.for_each(|run| run.push_onto(&mut seen));
    let service = xebec_format::runtime_image::Service {
        key: ServiceKey {
            argv: vec!["serve".to_owned(), "all".to_owned()],
            env: BTreeMap::new(),
        },
        probe: String::new(),
        recorded: 1_700_000_000,
        runs: 1,
        recorder: "xebec 0".to_owned(),
        touched: seen,
    };
    let layer = |place: usize| RecordedLayer {
        layer: layers[place],
        index: index_of(place, index),
        data_size: 4096 * 100,
    };
    Recording {
        image: subject.digest,
        layers: vec![layer(0), layer(1)],
        services: vec![service],
        zeros: Vec::new(),
        zones: vec![Zone {
            digest: Digest::of(zone),
            size: zone.len() as u64,
        }],
        segments,
        indexes: vec![BundledIndex {
            layer: 0,
            zone: 0,
            offset: 0,
            length: index.len() as u64,
        }],
    }
}

/// Asks for a start.
pub(super) async fn ask(registry: &Running, repository: &str, request: &Value) -> Response {
    registry
        .request(Method::POST, &format!("/v2/{repository}/_xebec/start/answer"))
        .header("content-type", xebec_native::start_request::TYPE)
        .body(request.to_string())
        .send()
        .await
        .unwrap()
}

/// An answer, taken apart.
pub(super) struct Started {
    pub(super) parts: Vec<(Answer, Vec<u8>)>,
}

/// Asks for a start that is answered.
pub(super) async fn started(registry: &Running, repository: &str, request: &Value) -> Started {
    let answer = ask(registry, repository, request).await;
    let status = answer.status();
    let headers = answer.headers().clone();
    let bytes = answer.bytes().await.unwrap();
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
    assert_eq!(headers["content-type"], TYPE);
    assert_eq!(headers["content-length"], bytes.len().to_string());
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>().unwrap();
    let (head, mut contents) = rest.split_at(head_size(*prefix).unwrap());
    let mut parts = Vec::new();
    for answer in Head::decode(head).unwrap().answers {
        let (content, rest) = contents.split_at(answer.size() as usize);
        parts.push((answer, content.to_vec()));
        contents = rest;
    }
    assert!(contents.is_empty());
    Started { parts }
}

impl Started {
    /// Compares each part with the answer to the request that it stands for.
    pub(super) async fn is_as_plain_requests(&self, registry: &Running, repository: &str) {
        let get = async |path: &str| {
            let answer = registry.get(&format!("/v2/{repository}/{path}")).await;
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            let media_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
            (media_type, answer.bytes().await.unwrap())
        };
        for (part, content) in &self.parts {
            let plain = match part {
                Answer::Manifest {
                    reference,
                    media_type,
                    ..
                } => {
                    let (plain_type, plain) = get(&format!("manifests/{reference}")).await;
                    assert_eq!(&plain_type, media_type);
                    plain.to_vec()
                }
                Answer::Referrers { subject, .. } => get(&format!("referrers/{subject}")).await.1.to_vec(),
                Answer::Blob { digest, .. } => get(&format!("blobs/{digest}")).await.1.to_vec(),
                Answer::Pieces { digest, pieces } => {
                    let (_, blob) = get(&format!("blobs/{digest}")).await;
                    let pieces = pieces
                        .iter()
                        .map(|(offset, length)| blob[*offset as usize..(offset + length) as usize].to_vec());
                    pieces.collect::<Vec<_>>().concat()
                }
            };
            assert!(plain == *content, "{part:?} has other content");
        }
    }

    /// The references of manifests.
    pub(super) fn manifests(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|(part, _)| match part {
            Answer::Manifest { reference, .. } => Some(reference.as_str()),
            _ => None,
        })
    }

    /// All pieces.
    pub(super) fn pieces(&self) -> Vec<(u64, u64)> {
        let pieces = self.parts.iter().filter_map(|(part, _)| match part {
            Answer::Pieces { pieces, .. } => Some(pieces.clone()),
            _ => None,
        });
        pieces.flatten().collect()
    }

    /// How many blobs there are.
    pub(super) fn blobs(&self) -> usize {
        self.parts.iter().filter(|(part, _)| kind(part) == "blob").count()
    }
}

/// The kind of a part.
pub(super) fn kind(part: &Answer) -> &'static str {
    match part {
        Answer::Manifest { .. } => "manifest",
        Answer::Referrers { .. } => "referrers",
        Answer::Blob { .. } => "blob",
        Answer::Pieces { .. } => "pieces",
    }
}

/// The kinds of parts, with what they are to a service.
pub(super) fn kinds(service: &Service, started: &Started) -> Vec<String> {
    let name = |part: &Answer| match part {
        Answer::Manifest { reference, .. } => {
            let place = service.manifests.iter().position(|(name, _)| name == reference);
            match place {
                Some(1) => "recording".to_owned(),
                Some(2) => "indexes".to_owned(),
                _ => reference.clone(),
            }
        }
        Answer::Blob { digest, .. } if *digest == service.recording => "recording".to_owned(),
        Answer::Blob { digest, .. } if *digest == Digest::of(&service.index) => "index 0".to_owned(),
        Answer::Blob { digest, .. } if *digest == Digest::of(SECOND) => "index 1".to_owned(),
        Answer::Blob { digest, .. } if *digest == Digest::of(&service.config) => "config".to_owned(),
        Answer::Blob { digest, .. } => digest.to_string(),
        Answer::Pieces { digest, .. } => {
            assert_eq!(*digest, service.zone);
            String::new()
        }
        Answer::Referrers { subject, .. } => {
            assert_eq!(*subject, service.image);
            String::new()
        }
    };
    let parts = started.parts.iter();
    let named = parts.map(|(part, _)| format!("{} {}", kind(part), name(part)).trim().to_owned());
    named.collect()
}

/// Remembers what happens.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub(super) fn listener(&self) -> Arc<dyn Listener> {
        Arc::new(self.clone())
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Listener for Told {
    fn happened(&self, event: &Event) {
        let (kind, what) = match event.kind {
            EventKind::PullManifest => ("pull-manifest", event.tags.join(" ")),
            EventKind::PullBlob => ("pull-blob", event.size.unwrap_or_default().to_string()),
            _ => return,
        };
        let digest = event.digest.as_deref().unwrap_or_default();
        self.0.lock().push(format!("{kind} {digest} {what}"));
    }
}
