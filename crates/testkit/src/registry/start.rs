//! Answers to a start in advance (docs/formats/native-service.md), put together from what the registry has. It is written without
//! the crate that hosts and registries share, so that tests notice when that changes the form.

use bytes::Bytes;
use serde_json::{Value, json};
use xebec_format::digest::Digest;

use super::reply::Reply;
use super::store::{INDEX_TYPE, Repository, Store};

/// Blobs that are longer are not sent whole.
const MAX_BLOB: usize = 1 << 20;

/// Which answers a registry gives to a start, and which of them are lies.
#[derive(Debug, Clone, Default)]
pub(super) struct StartScript {
    /// The pieces of blobs that it sends.
    pub(super) pieces: Vec<SentPieces>,
    /// Kinds of answers in whose contents each byte is wrong.
    pub(super) lies: Vec<String>,
    /// Kinds of answers that it leaves out.
    pub(super) without: Vec<String>,
}

/// Pieces of a blob of a repository.
#[derive(Debug, Clone)]
pub(super) struct SentPieces {
    pub(super) repository: String,
    pub(super) blob: Digest,
    /// Offsets and lengths.
    pub(super) pieces: Vec<(u64, u64)>,
}

/// The answer to a start request for an image of the repository `name`.
pub(super) fn answer(script: &StartScript, store: &mut Store, name: &str, request: &[u8]) -> Reply {
    let Ok(request) = serde_json::from_slice::<Value>(request) else {
        return Reply::error(400, "START_INVALID");
    };
    let repository = store.repository(name);
    let reference = request["reference"].as_str().unwrap_or_default();
    let platform = request["platform"].as_str().unwrap_or_default();
    let Some(mut answers) = of_image(repository, reference, platform) else {
        return Reply::error(404, "MANIFEST_UNKNOWN");
    };
    if request["service"].is_object() {
        let sent = script.pieces.iter().filter(|sent| sent.repository == name);
        answers.extend(sent.filter_map(|sent| {
            let blob = repository.blobs.get(&sent.blob)?;
            let part =
                |(offset, length): &(u64, u64)| blob.slice(*offset as usize..(offset + length) as usize);
            let content = sent.pieces.iter().map(part).collect::<Vec<_>>().concat();
            let head = json!({"kind": "pieces", "digest": sent.blob, "pieces": sent.pieces});
            Some((head, content.into()))
        }));
    }
    let kind = |head: &Value| head["kind"].as_str().unwrap_or_default().to_owned();
    answers.retain(|(head, _)| !script.without.contains(&kind(head)));
    let heads: Vec<&Value> = answers.iter().map(|(head, _)| head).collect();
    let head = json!({ "answers": heads }).to_string();
    let mut body = b"XEBECST1".to_vec();
    body.extend((head.len() as u32).to_le_bytes());
    body.extend(head.as_bytes());
    for (head, content) in &answers {
        let lies = script.lies.contains(&kind(head));
        body.extend(content.iter().map(|byte| byte ^ u8::from(lies)));
    }
    Reply::new(200)
        .with("content-type", "application/vnd.xebec.start.v1")
        .body(body)
}

/// Manifests, referrers and small blobs.
fn of_image(repository: &Repository, reference: &str, platform: &str) -> Option<Vec<(Value, Bytes)>> {
    let mut answers = Vec::new();
    let manifest = |name: &str, answers: &mut Vec<(Value, Bytes)>| {
        let (digest, stored) = repository.manifest(name)?;
        let head = json!({
            "kind": "manifest", "reference": name, "media_type": stored.media_type, "size": stored.bytes.len(),
        });
        answers.push((head, stored.bytes.clone()));
        Some((digest, serde_json::from_slice::<Value>(&stored.bytes).ok()?))
    };
    let (mut digest, mut image) = manifest(reference, &mut answers)?;
    if let Some(entries) = image["manifests"].as_array() {
        let of = |entry: &&Value| {
            let text = |field: &str| entry["platform"][field].as_str().unwrap_or_default().to_owned();
            platform.starts_with(&format!("{}/{}", text("os"), text("architecture")))
        };
        let wanted = entries.iter().find(of)?["digest"].as_str()?.to_owned();
        (digest, image) = manifest(&wanted, &mut answers)?;
    }
    let mut blobs = vec![image["config"].clone()];
    let referrers = repository.referrers(&digest.to_string());
    let list = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": referrers}).to_string();
    let head = json!({"kind": "referrers", "subject": digest, "size": list.len()});
    answers.push((head, list.into()));
    for referrer in &referrers {
        let (_, artifact) = manifest(referrer["digest"].as_str()?, &mut answers)?;
        blobs.extend(artifact["layers"].as_array().into_iter().flatten().cloned());
    }
    for blob in blobs.iter().filter(|blob| blob["data"].is_null()) {
        let found = blob["digest"]
            .as_str()
            .and_then(|text| text.parse::<Digest>().ok());
        let bytes = found.and_then(|digest| repository.blobs.get(&digest));
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() <= MAX_BLOB) {
            let head = json!({"kind": "blob", "digest": blob["digest"], "size": bytes.len()});
            answers.push((head, bytes.clone()));
        }
    }
    Some(answers)
}
