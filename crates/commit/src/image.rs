//! Configuration and manifest of an image that is one layer more than another one.

use serde_json::{Map, Value, json};
use xebec_format::digest::Digest;

use crate::blob::Layer;
use crate::change::{Change, apply};

/// Media types of the OCI image specification.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Docker's media types of layers, and those by which OCI calls the same bytes.
const LAYERS: [(&str, &str); 5] = [
    (
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.oci.image.layer.v1.tar",
    ),
    (
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.oci.image.layer.v1.tar+gzip",
    ),
    (
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
        "application/vnd.oci.image.layer.v1.tar+zstd",
    ),
    (
        "application/vnd.docker.image.rootfs.foreign.diff.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
    ),
    (
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    ),
];

/// The image that a container was started from.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// The bytes of its manifest.
    pub manifest: &'a [u8],
    /// The bytes of its configuration.
    pub config: &'a [u8],
    /// How it is named, with its manifest's digest: `registry/repository@sha256:…`.
    pub reference: &'a str,
}

/// What the history says of the new layer.
#[derive(Clone, Copy, Debug)]
pub struct Provenance<'a> {
    /// When it was made, as RFC 3339 has it.
    pub created: &'a str,
    /// What made it: the container's command line.
    pub created_by: &'a str,
    /// `--author`.
    pub author: Option<&'a str>,
    /// `--message`.
    pub message: Option<&'a str>,
}

/// An image that was made: the documents that a registry gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImage {
    /// The bytes of the configuration.
    pub config: Vec<u8>,
    /// The bytes of the manifest.
    pub manifest: Vec<u8>,
    /// The digest of the new layer; `None` if the container changed nothing.
    pub layer: Option<Digest>,
    /// How its base is named.
    pub base: String,
}

/// The base's documents are not those of an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// One of them cannot be read.
    #[error("the {0} of the container's image cannot be read: {1}")]
    Unreadable(&'static str, serde_json::Error),
    /// One of them has not what each image has.
    #[error("the {0} of the container's image has no {1}")]
    Lacks(&'static str, &'static str),
}

/// Makes configuration and manifest of an image: those of the base, and one layer. A layer without entries is left out, and the history
/// says so (`empty_layer`), as docker does it: so `--change` alone makes an image, too.
///
/// # Errors
/// When the base's documents are not those of an image.
pub fn make_image(
    base: &Base<'_>,
    layer: &Layer,
    changes: &[Change],
    provenance: &Provenance<'_>,
) -> Result<NewImage, ImageError> {
    let is_empty = layer.entries == 0;
    let config = new_config(base.config, (!is_empty).then_some(layer), changes, provenance)?;
    let read: Value =
        serde_json::from_slice(base.manifest).map_err(|error| ImageError::Unreadable("manifest", error))?;
    let layers = read.get("layers").and_then(Value::as_array);
    let mut layers = layers.cloned().ok_or(ImageError::Lacks("manifest", "layers"))?;
    for layer in &mut layers {
        let media_type = layer.get("mediaType").and_then(Value::as_str);
        let known = LAYERS.iter().find(|(dockers, _)| Some(*dockers) == media_type);
        if let Some((_, named)) = known {
            layer["mediaType"] = json!(named);
        }
    }
    if !is_empty {
        layers.push(json!({ "mediaType": layer.media_type, "digest": layer.digest, "size": layer.size }));
    }
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": CONFIG, "digest": Digest::of(&config), "size": config.len() },
        "layers": layers,
    });
    Ok(NewImage {
        manifest: bytes(&manifest),
        config,
        layer: (!is_empty).then_some(layer.digest),
        base: base.reference.to_owned(),
    })
}

fn new_config(
    base: &[u8],
    layer: Option<&Layer>,
    changes: &[Change],
    provenance: &Provenance<'_>,
) -> Result<Vec<u8>, ImageError> {
    let unreadable = |error| ImageError::Unreadable("configuration", error);
    let mut config: Map<String, Value> = serde_json::from_slice(base).map_err(unreadable)?;
    // Docker's facts about the container that the base was made from.
    for former in ["container", "container_config", "id", "parent"] {
        config.remove(former);
    }
    let lacks = |member| ImageError::Lacks("configuration", member);
    let diff_ids = config
        .get_mut("rootfs")
        .and_then(|rootfs| rootfs.get_mut("diff_ids"));
    let diff_ids = diff_ids
        .and_then(Value::as_array_mut)
        .ok_or_else(|| lacks("diff IDs"))?;
    let base_layers = diff_ids.len();
    diff_ids.extend(layer.map(|layer| json!(layer.diff_id)));
    let mut entry = json!({ "created": provenance.created, "created_by": provenance.created_by });
    for (name, text) in [("author", provenance.author), ("comment", provenance.message)] {
        if let Some(text) = text {
            entry[name] = json!(text);
        }
    }
    if layer.is_none() {
        entry["empty_layer"] = json!(true);
    }
    let mut history = match config.remove("history") {
        Some(Value::Array(history)) => history,
        _ => Vec::new(),
    };
    // Readers take the n-th entry that has a layer for the n-th layer, so each layer of the base needs one.
    let is_empty = |entry: &&Value| entry.get("empty_layer") == Some(&json!(true));
    let said = history.len() - history.iter().filter(is_empty).count();
    let unsaid = base_layers.saturating_sub(said);
    history.extend(std::iter::repeat_n(
        json!({ "comment": "a layer without history" }),
        unsaid,
    ));
    history.push(entry);
    config.insert("history".to_owned(), Value::Array(history));
    config.insert("created".to_owned(), json!(provenance.created));
    if let Some(author) = provenance.author {
        config.insert("author".to_owned(), json!(author));
    }
    let mut run = match config.remove("config") {
        Some(Value::Object(run)) => run,
        _ => Map::new(),
    };
    apply(changes, &mut run);
    config.insert("config".to_owned(), Value::Object(run));
    Ok(bytes(&Value::Object(config)))
}

/// A document as it is stored. Keys are in order, so the same document has the same bytes.
fn bytes(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn made(entries: u64) -> (Value, Value, NewImage) {
        let layer = Layer {
            digest: Digest::of(b"layer"),
            size: 5,
            diff_id: Digest::of(b"plain"),
            plain_size: 1024,
            entries,
            media_type: "application/vnd.oci.image.layer.v1.tar+zstd",
        };
        let config = json!({
            "os": "linux", "config": { "User": "x" }, "container": "old", "unknown": 1,
            "rootfs": { "type": "layers", "diff_ids": [Digest::of(b"base")] }, "history": [{ "created_by": "base" }],
        });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {}, "layers": [{ "mediaType": LAYERS[1].0, "digest": Digest::of(b"blob"), "size": 4 }],
        });
        let (manifest, config) = (manifest.to_string(), config.to_string());
        let base = Base {
            manifest: manifest.as_bytes(),
            config: config.as_bytes(),
            reference: "registry.example.com/app@sha256:00",
        };
        let provenance = Provenance {
            created: "2026-01-01T00:00:00Z",
            created_by: "sh",
            author: Some("anna"),
            message: None,
        };
        let image = make_image(&base, &layer, &["USER y".parse().unwrap()], &provenance).unwrap();
        let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        (parsed(&image.config), parsed(&image.manifest), image)
    }

    #[test]
    fn the_new_image_is_the_base_and_one_layer() {
        let (config, manifest, image) = made(1);
        assert_eq!(config["rootfs"]["diff_ids"][1], json!(Digest::of(b"plain")));
        assert_eq!(
            config["history"][1],
            json!({ "created": "2026-01-01T00:00:00Z", "created_by": "sh", "author": "anna" })
        );
        assert_eq!(
            (&config["config"]["User"], &config["unknown"]),
            (&json!("y"), &json!(1))
        );
        assert_eq!(config["container"], Value::Null);
        assert_eq!(manifest["mediaType"], MANIFEST);
        assert_eq!(
            manifest["layers"][0]["mediaType"], LAYERS[1].1,
            "docker's name does not fit an OCI manifest"
        );
        assert_eq!(manifest["layers"][1]["digest"], json!(Digest::of(b"layer")));
        assert_eq!(manifest["config"]["digest"], json!(Digest::of(&image.config)));
    }

    #[test]
    fn each_layer_of_the_base_has_an_entry_in_the_history() {
        let base = json!({
            "rootfs": { "diff_ids": [1, 2, 3] }, "history": [{ "created_by": "one" }, { "empty_layer": true }],
        });
        for (history, wanted) in [(base["history"].clone(), 5), (Value::Null, 4)] {
            let mut config = base.clone();
            config["history"] = history;
            let provenance = Provenance {
                created: "",
                created_by: "last",
                author: None,
                message: None,
            };
            let made = new_config(config.to_string().as_bytes(), None, &[], &provenance).unwrap();
            let made: Value = serde_json::from_slice(&made).unwrap();
            let history = made["history"].as_array().unwrap();
            assert_eq!(history.len(), wanted);
            assert_eq!(history[wanted - 1]["created_by"], "last");
        }
    }

    #[test]
    fn without_changes_there_is_no_layer() {
        let (config, manifest, image) = made(0);
        assert_eq!(image.layer, None);
        assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 1);
        assert_eq!(config["history"][1]["empty_layer"], true);
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn documents_that_are_none_are_refused() {
        let layer = Layer::empty();
        let provenance = Provenance {
            created: "",
            created_by: "",
            author: None,
            message: None,
        };
        for (manifest, config) in [
            ("{}", r#"{"rootfs":{"diff_ids":[]}}"#),
            ("[", "{}"),
            (r#"{"layers":[]}"#, "{}"),
        ] {
            let base = Base {
                manifest: manifest.as_bytes(),
                config: config.as_bytes(),
                reference: "",
            };
            assert!(
                make_image(&base, &layer, &[], &provenance).is_err(),
                "{manifest} {config}"
            );
        }
    }
}
