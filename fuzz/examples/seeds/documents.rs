//! Documents of registries, and settings.

use serde_json::json;

use crate::output::{Failure, INDEX, LAYER, OCI_MANIFEST, put, put_texts};
use xebec_artifact::artifact::{Artifact, BlobRef, LayerBlobs};
use xebec_format::digest::Digest;
use xebec_oci::Descriptor;

pub(crate) fn documents() -> Result<(), Failure> {
    put_texts(
        "reference",
        &[
            "nginx",
            "docker.io/library/nginx:1.25",
            "localhost:5000/a/b_c--d:tag@sha256:1111111111111111111111111111111111111111111111111111111111111111",
            "[::1]:5000/name",
        ],
    )?;
    put_texts(
        "copies",
        &["intact@main files@cold\nchunks@a,b,c(2+1)\nintact@a,b,main(1+2) chunks@b,a(1+1)"],
    )?;
    let descriptor = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": LAYER, "size": 3,
        "annotations": {"a": "b"}, "urls": ["https://example.com/"], "data": "YWJj"});
    let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "digest": INDEX, "size": 2});
    let image = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [descriptor],
        "subject": config, "annotations": null});
    let index = json!({"schemaVersion": 2, "manifests": [{"mediaType": OCI_MANIFEST, "digest": LAYER, "size": 5,
        "platform": {"os": "linux", "architecture": "arm", "variant": "v7", "os.version": "1", "features": []}}]});
    put("manifest", "image", format!("\0{image}").as_bytes())?;
    put("manifest", "index", format!("\0{index}").as_bytes())?;
    put_texts(
        "image_config",
        &[
            r#"{"architecture":"amd64","os":"linux","variant":"","config":{"User":"www:www","Env":["A=b"],"Entrypoint":["/e"],"Cmd":null,"WorkingDir":"/","StopSignal":"SIGQUIT","ExposedPorts":{"80/tcp":{}},"Labels":{"a":"b"}},"rootfs":{"type":"layers","diff_ids":["sha256:1111111111111111111111111111111111111111111111111111111111111111"]},"history":[]}"#,
            r#"{"config":null,"rootfs":null}"#,
        ],
    )?;
    put_texts(
        "challenge",
        &[
            "Bearer realm=\"https://auth.example.com/token\",service=\"registry\",scope=\"repository:a/b:pull\"",
            "Negotiate, Basic realm=\"a \\\"quoted\\\" name\"\nbearer realm=x , service = y",
        ],
    )?;
    put_texts(
        "registry_answer",
        &[
            r#"{"name":"team/app","tags":["1.27","latest","sha256-00.sig"]}"#,
            r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known","detail":null}]}"#,
            r#"{"token":"abc.def-0","access_token":"x","expires_in":300,"issued_at":"2026-01-31T23:59:59Z"}"#,
            "bytes 0-499/1000\n</v2/x/tags/list?n=1>; rel=\"next\"\nhttps://cdn.example/x?X-Amz-Date=20231114T221320Z&X-Amz-Expires=600\nhttps://cdn.example/x?se=2023-11-14T22%3A14%3A20Z&sig=x\n",
        ],
    )?;
    put_texts(
        "login_file",
        &[
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"aHViOnB3OjE="},"registry.example.com:5000/team":{"username":"u","password":"p"},"acr.example":{"auth":"MDA6","identitytoken":"refresh"},"null.example":null},"credHelpers":{"gcr.io":"gcloud"},"credsStore":""}"#,
            r#"{"ServerURL":"https://a","Username":"u","Secret":"s"}"#,
            r#"{"kind":"CredentialProviderResponse","auth":{"*.example.com/team":{"username":"u","password":"p"}}}"#,
            "kind: CredentialProviderConfig\nproviders:\n- name: ecr\n  matchImages: [\"*.example.com\"]\n  apiVersion: v1\n  args: [get]\n  env: [{name: A, value: b}]\n",
        ],
    )?;
    put(
        "settings",
        "registries",
        b"plain_http = [\"registry.lan:5000\"]\n[budget]\nattempts = 3\nbase_delay = \"50ms\"\n\
          [[mirrors.\"docker.io\"]]\nurl = \"https://mirror.lan/hub\"\nresolve_tags = true\n",
    )?;
    let blob = |text: &str| BlobRef {
        digest: Digest::of(text.as_bytes()),
        size: text.len() as u64,
    };
    let blobs = LayerBlobs {
        index: blob("index"),
        windows: Some(blob("windows")),
        frame: Some(blob("frame")),
        contents: Some(blob("contents")),
    };
    let artifact = Artifact {
        layers: [(LAYER, blobs)].into(),
    };
    let manifest = artifact.encode(Descriptor::of(OCI_MANIFEST, b"image"), &[LAYER]);
    put("artifact", "one-layer", &serde_json::to_vec(&manifest)?)?;
    Ok(())
}
