//! Against the CNCF registry, filled by skopeo: programs that were not written with Xebec in mind.
//!
//! SKIPPED where the programs are missing: `registry` (distribution v3, in `PATH` or `~/go/bin`) and `skopeo`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use xebec_format::digest::{Digest, Digester};
use xebec_oci::manifest::{Descriptor, ImageManifest};
use xebec_oci::media_type::{OCI_EMPTY, OCI_MANIFEST};
use xebec_oci::{BlobSource, BlobUpload, Platform, Reference, Repository};
use xebec_testkit::compression::Compression;

use crate::push::Kept;
use crate::support::{client, manifest_of, noise};

/// A program in `PATH` or where Go installs.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let go = std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin"));
    std::env::split_paths(&path)
        .chain(go)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// A registry on loopback; killed when dropped.
struct Registry {
    child: Child,
    host: String,
    _directory: tempfile::TempDir,
}

impl Registry {
    fn start(program: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config.yml");
        let storage = directory.path().join("storage");
        let text = format!(
            "version: 0.1\nlog: {{level: info, formatter: text}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: '127.0.0.1:0'}}\n",
            storage.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(program)
            .args(["serve".as_ref(), config.as_os_str()])
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let host = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            let end = rest
                .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
                .unwrap_or(rest.len());
            Some(rest[..end].to_owned())
        });
        // Its log must be read on, or it stops when the pipe is full.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let host = host.expect("the registry says where it listens");
        Self {
            child,
            host,
            _directory: directory,
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn registry() -> Option<Registry> {
    match program("registry") {
        Some(program) => Some(Registry::start(&program)),
        None => {
            println!(
                "SKIPPED: no program `registry` (go install github.com/distribution/distribution/v3/cmd/registry)"
            );
            None
        }
    }
}

/// An OCI layout directory with one image, tagged `v1`.
fn write_layout(directory: &Path, layer: &[u8]) -> Digest {
    let (config, manifest) = manifest_of(layer, "amd64");
    let blobs = directory.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    for bytes in [layer, &config, &manifest] {
        std::fs::write(blobs.join(Digest::of(bytes).hex()), bytes).unwrap();
    }
    std::fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let mut entry = serde_json::to_value(Descriptor::of(OCI_MANIFEST, &manifest)).unwrap();
    entry["annotations"] = serde_json::json!({"org.opencontainers.image.ref.name": "v1"});
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [entry]});
    std::fs::write(directory.join("index.json"), index.to_string()).unwrap();
    Digest::of(&manifest)
}

#[tokio::test]
async fn reads_what_skopeo_pushed() {
    let Some(registry) = registry() else { return };
    let Some(skopeo) = program("skopeo") else {
        println!("SKIPPED: no program `skopeo` (Debian package skopeo)");
        return;
    };
    let layout = tempfile::tempdir().unwrap();
    // skopeo looks at the bytes: what is called gzip has to be gzip.
    let layer = Compression::Gzip(6).encode(&noise(3_000_000)).unwrap();
    let manifest_digest = write_layout(layout.path(), &layer);
    for (format, tag) in [("oci", "v1"), ("v2s2", "docker")] {
        let status = Command::new(&skopeo)
            .args([
                "copy",
                "--quiet",
                "--dest-tls-verify=false",
                "--format",
                format,
                "--insecure-policy",
            ])
            .arg(format!("oci:{}:v1", layout.path().display()))
            .arg(format!("docker://{}/team/app:{tag}", registry.host))
            .status()
            .unwrap();
        assert!(status.success());
    }
    let client = client();
    for tag in ["v1", "docker"] {
        let reference: Reference = format!("{}/team/app:{tag}", registry.host).parse().unwrap();
        let image = client
            .resolve(&reference, &Platform::linux("amd64"))
            .await
            .unwrap();
        assert_eq!(image.config.config.entrypoint, ["/bin/app"]);
        if tag == "v1" {
            assert_eq!(image.manifest_digest, manifest_digest);
        } else {
            assert_eq!(image.manifest_media_type, xebec_oci::media_type::DOCKER_MANIFEST);
        }
        let (blob, size) = (image.manifest.layers[0].digest, image.manifest.layers[0].size);
        let bytes = client
            .blob_range(&image.repository, &blob, 1_000_000..1_000_100)
            .await
            .unwrap();
        assert_eq!(bytes, layer[1_000_000..1_000_100]);
        let mut stream = client
            .blob_stream(&image.repository, &blob, size, 0)
            .await
            .unwrap();
        let mut digester = Digester::new();
        while let Some(part) = stream.next_part().await.unwrap() {
            digester.update(&part);
        }
        assert_eq!(digester.finish(), blob);
    }
    assert_eq!(client.stats().retries, 0);
    assert_eq!(client.ranges_honoured(&registry.host), Some(true));
}

/// The program that pushes is gone in the middle of a piece.
#[tokio::test(flavor = "multi_thread")]
async fn goes_on_with_a_push_that_was_stopped() {
    let Some(registry) = registry() else { return };
    let repository = Repository::new(&registry.host, "team/app").unwrap();
    let blob = Bytes::from(noise(1 << 20).repeat(70));
    let kept = Arc::new(Kept::default());
    let pushing = tokio::spawn({
        let (repository, blob, kept) = (repository.clone(), blob.clone(), kept.clone());
        async move {
            let source = BlobSource::Bytes(blob);
            client()
                .push_blob_keeping(&repository, source, None, Some(&*kept))
                .await
        }
    });
    while kept.notes() < 3 && !pushing.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pushing.abort();
    let _ = pushing.await;
    assert!(!kept.is_over(), "it had ended before it was stopped");
    let client = client();
    let pushed = client
        .push_blob_keeping(&repository, BlobSource::Bytes(blob.clone()), None, Some(&*kept))
        .await
        .unwrap();
    assert_eq!(pushed, (Digest::of(&blob), BlobUpload::Sent));
    assert!(kept.is_over());
    let sent = client.stats().bytes_sent;
    assert!(sent <= (70 - 32) << 20, "{sent} bytes were sent again");
}

#[tokio::test]
async fn pushes_attaches_and_finds() {
    let Some(registry) = registry() else { return };
    let client = client();
    let repository = Repository::new(&registry.host, "team/app").unwrap();
    let layer = noise(2_000_000);
    let (config, manifest) = manifest_of(&layer, "amd64");
    for bytes in [layer.clone(), config, b"{}".to_vec()] {
        let source = BlobSource::Bytes(bytes.into());
        assert_eq!(
            client
                .push_blob(&repository, source.clone(), None)
                .await
                .unwrap()
                .1,
            BlobUpload::Sent
        );
        assert_eq!(
            client.push_blob(&repository, source, None).await.unwrap().1,
            BlobUpload::Existed
        );
    }
    let other = Repository::new(&registry.host, "other").unwrap();
    let mount = client
        .push_blob(&other, BlobSource::Bytes(layer.into()), Some(&repository))
        .await
        .unwrap();
    assert_eq!(mount.1, BlobUpload::Mounted);
    client
        .push_manifest(&repository, "v1", OCI_MANIFEST, Bytes::from(manifest.clone()))
        .await
        .unwrap();
    let subject = Descriptor::of(OCI_MANIFEST, &manifest);
    for note in ["one", "two"] {
        let artifact = ImageManifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.to_owned()),
            artifact_type: Some("application/vnd.xebec.test.v1+json".to_owned()),
            config: Descriptor::of(OCI_EMPTY, b"{}"),
            layers: vec![Descriptor::of(OCI_EMPTY, b"{}")],
            subject: Some(subject.clone()),
            annotations: [("note".to_owned(), note.to_owned())].into(),
        };
        client.attach(&repository, &artifact).await.unwrap();
    }
    let kind = Some("application/vnd.xebec.test.v1+json");
    let found = client
        .referrers(&repository, &subject.digest, kind)
        .await
        .unwrap();
    assert_eq!(found.len(), 2);
    let report = client.probe(&registry.host, None).await.unwrap();
    println!("{report:?}");
    assert_eq!(report.scheme, "http");
}
