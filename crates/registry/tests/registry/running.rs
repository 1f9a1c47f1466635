//! A registry that runs on loopback until the test ends, and what tests ask it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xebec_registry_server::server::{Server, ServerSettings};
use xebec_registry_server::state::Registry;
use xebec_store::{Algorithm, Digest, Store, StoreConfig};

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) client: Client,
    pub(crate) registry: Arc<Registry>,
    end: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    _root: tempfile::TempDir,
}

impl Running {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}, |_| {}).await
    }

    /// With other settings of the server, and of the registry.
    pub(crate) async fn with(
        server: impl FnOnce(&mut ServerSettings),
        registry: impl FnOnce(&mut Registry),
    ) -> Self {
        Self::over(|_| {}, server, registry).await
    }

    /// With other settings of the store, too.
    pub(crate) async fn over(
        store: impl FnOnce(&mut StoreConfig),
        server: impl FnOnce(&mut ServerSettings),
        registry: impl FnOnce(&mut Registry),
    ) -> Self {
        // reqwest without a provider of its own wants one of the process; a second time it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let root = tempfile::tempdir().unwrap();
        let mut config = StoreConfig::new(root.path().join("store"));
        config.max_blob = 64 << 20;
        store(&mut config);
        let store = Store::open(&config).await.unwrap();
        let mut made = Registry::new(store);
        // A busy machine leaves nothing out.
        made.start_patience = Duration::from_secs(600);
        registry(&mut made);
        let made = Arc::new(made);
        let mut settings = ServerSettings {
            listen: vec!["127.0.0.1:0".to_owned()],
            ..ServerSettings::default()
        };
        server(&mut settings);
        let server = Server::listen(made.clone(), settings).await.unwrap();
        let address = server.addresses()[0];
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let ended = async {
                let _ = ended.await;
            };
            server.serve(ended).await.unwrap();
        });
        let client = Client::builder().no_proxy().build().unwrap();
        Self {
            address,
            client,
            registry: made,
            end: Some(end),
            served,
            _root: root,
        }
    }

    /// Tells the server to end.
    pub(crate) fn end(&mut self) {
        let _ = self.end.take().unwrap().send(());
    }

    /// Waits until it has.
    pub(crate) async fn ended(self) {
        tokio::time::timeout(Duration::from_secs(60), self.served)
            .await
            .expect("the server ends")
            .unwrap();
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    /// Pushes a blob in one request.
    pub(crate) async fn push_blob(&self, repository: &str, content: &[u8]) -> Digest {
        let digest = Digest::of(Algorithm::Sha256, content);
        let path = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
        let request = self.request(Method::POST, &path).body(content.to_vec());
        let answer = request.send().await.unwrap();
        assert_eq!(
            answer.status(),
            StatusCode::CREATED,
            "{}",
            answer.text().await.unwrap()
        );
        digest
    }

    /// Pushes a manifest under a reference.
    pub(crate) async fn push_manifest(
        &self,
        repository: &str,
        reference: &str,
        manifest: &Value,
    ) -> Response {
        let media_type = manifest["mediaType"].as_str().unwrap_or(OCI_MANIFEST).to_owned();
        self.request(Method::PUT, &format!("/v2/{repository}/manifests/{reference}"))
            .header("content-type", media_type)
            .body(manifest.to_string())
            .send()
            .await
            .unwrap()
    }

    /// Pushes an image of one layer, and says its manifest and that one's digest.
    pub(crate) async fn push_image(&self, repository: &str, tag: &str, layer: &[u8]) -> (Value, Digest) {
        let config = self.push_blob(repository, b"{}").await;
        let pushed = self.push_blob(repository, layer).await;
        let manifest = image(&config, &pushed, layer.len());
        let answer = self.push_manifest(repository, tag, &manifest).await;
        assert_eq!(
            answer.status(),
            StatusCode::CREATED,
            "{}",
            answer.text().await.unwrap()
        );
        let digest = Digest::of(Algorithm::Sha256, manifest.to_string().as_bytes());
        assert_eq!(answer.headers()["docker-content-digest"], digest.to_string());
        (manifest, digest)
    }
}

/// The manifest of an image.
pub(crate) fn image(config: &Digest, layer: &Digest, size: usize) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config.to_string(), "size": 2},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer.to_string(), "size": size}],
    })
}

/// An artifact that refers to a manifest.
pub(crate) fn artifact(config: &Digest, subject: &Digest, artifact_type: &str) -> Value {
    let mut manifest = image(config, config, 2);
    manifest["artifactType"] = json!(artifact_type);
    manifest["subject"] = json!({"mediaType": OCI_MANIFEST, "digest": subject.to_string(), "size": 1});
    manifest["annotations"] = json!({"of": artifact_type});
    manifest
}

/// The code of an answer that is an error, which has a detail, too.
pub(crate) async fn code(answer: Response) -> String {
    let status = answer.status();
    let text = answer.text().await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}"));
    let error = &body["errors"][0];
    assert!(
        error["detail"].as_str().is_some_and(|detail| !detail.is_empty()),
        "{body}"
    );
    error["code"].as_str().unwrap().to_owned()
}
