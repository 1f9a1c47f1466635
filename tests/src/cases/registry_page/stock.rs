//! The contents that a case of the page has in its registry, and questions to it without a browser.

use std::fs;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use crate::browser::text;
use crate::cases::registry::{layout, skopeo_push};
use crate::registry::OwnRegistry;
use crate::world::{World, run};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const EMPTY: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

/// The rights: everybody may read what is open, and `anna` everything.
pub(super) fn logins(world: &World) -> String {
    format!(
        "[auth]\nhtpasswd = \"{}\"\nadministrators = [\"user:anna\"]\n\
         [[auth.rule]]\nrepositories = \"**\"\nwho = [\"user:anna\"]\nactions = [\"pull\", \"push\", \"delete\"]\n\
         [[auth.rule]]\nrepositories = \"open/**\"\nwho = [\"anyone\"]\nactions = [\"pull\", \"push\"]\n",
        world.path("htpasswd").display()
    )
}

/// Pushes an image of two layers as `open/app`, with an index of images `all` and a signature; the digest of the image.
pub(super) fn fill(world: &World, registry: &OwnRegistry) -> Result<String> {
    skopeo_push(
        &layout(world, false)?,
        &format!("{}/open/app:1.0", registry.address),
        &[],
    )?;
    let index: Value = serde_json::from_slice(&fs::read(world.path("layout/index.json"))?)?;
    let image = index["manifests"][0].clone();
    let (digest, size) = (text(&image["digest"]).to_owned(), image["size"].clone());
    let mut of_images = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{"mediaType": MANIFEST, "digest": digest, "size": size,
                       "platform": {"os": "linux", "architecture": "riscv64"}}],
    });
    put(registry, "open/app", "all", &of_images)?;
    of_images["annotations"] = json!({"made": "again"});
    put(registry, "open/app", "edge", &of_images)?;
    put_empty_blob(registry, "open/app")?;
    put(
        registry,
        "open/app",
        "signature-of-it",
        &artifact("application/vnd.dev.cosign.artifact.sig.v1+json", Some(&image)),
    )?;
    skopeo_push(
        &layout(world, false)?,
        &format!("{}/open/tools/builder:2", registry.address),
        &[],
    )?;
    skopeo_push(
        &layout(world, false)?,
        &format!("{}/team/secret:1", registry.address),
        &["--dest-creds", "anna:secret"],
    )?;
    Ok(digest)
}

/// An artifact with an empty blob, which may refer to a manifest.
pub(super) fn artifact(kind: &str, subject: Option<&Value>) -> Value {
    let empty = json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": EMPTY, "size": 2});
    let mut artifact = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "config": empty, "layers": [empty],
    });
    if let Some(subject) = subject {
        artifact["subject"] = json!({
            "mediaType": MANIFEST, "digest": subject["digest"], "size": subject["size"],
        });
    }
    artifact
}

fn curl(arguments: &[&str]) -> Result<String> {
    let output = run(Command::new("curl")
        .args(["-sS", "--fail-with-body"])
        .args(arguments))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Pushes a manifest as `anna`.
pub(super) fn put(registry: &OwnRegistry, repository: &str, tag: &str, manifest: &Value) -> Result<()> {
    let kind = format!("content-type: {}", text(&manifest["mediaType"]));
    let address = format!("http://{}/v2/{repository}/manifests/{tag}", registry.address);
    curl(&[
        "-X",
        "PUT",
        "-u",
        "anna:secret",
        "-H",
        &kind,
        "--data-binary",
        &manifest.to_string(),
        &address,
    ])
    .map(|_| ())
}

fn put_empty_blob(registry: &OwnRegistry, repository: &str) -> Result<()> {
    let address = format!(
        "http://{}/v2/{repository}/blobs/uploads/?digest={EMPTY}",
        registry.address
    );
    let kind = "content-type: application/octet-stream";
    curl(&["-u", "anna:secret", "-H", kind, "--data-binary", "{}", &address]).map(|_| ())
}

/// The answer to a request for a page, with its head.
pub(super) fn curl_head(registry: &OwnRegistry, path: &str, more: &[&str]) -> Result<String> {
    let address = format!("http://{}{path}", registry.address);
    let output = run(Command::new("curl").args(["-sS", "-i"]).args(more).arg(&address))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
