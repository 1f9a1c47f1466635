//! Connections: both versions of HTTP, TLS, and the end of the server.

use std::time::Duration;

use reqwest::{Client, Method, StatusCode, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use xebec_policy::rate::Rate;
use xebec_registry_server::server::TlsSettings;

use crate::running::{Running, code};

#[tokio::test]
async fn both_versions_of_http_are_spoken_without_tls() {
    let registry = Running::start().await;
    let answer = registry.get("/v2/").await;
    assert_eq!(
        (answer.status(), answer.version()),
        (StatusCode::OK, Version::HTTP_11)
    );
    let client = Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let digest = registry.push_blob("a", &[7; 100_000]).await;
    let address = format!("http://{}/v2/a/blobs/{digest}", registry.address);
    let answer = client.get(&address).send().await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_2);
    assert_eq!(answer.bytes().await.unwrap().len(), 100_000);
    let head = client.head(&address).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], "100000");
}

#[tokio::test]
async fn a_certificate_is_shown_and_a_new_one_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let settings = TlsSettings {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    std::fs::write(&settings.certificate, certificate.pem()).unwrap();
    std::fs::write(&settings.key, key.serialize_pem()).unwrap();
    let registry = Running::with(|server| server.tls = Some(settings), |_| {}).await;
    let trusted = reqwest::Certificate::from_pem(certificate.pem().as_bytes()).unwrap();
    let client = Client::builder()
        .no_proxy()
        .tls_certs_only([trusted])
        .resolve("localhost", registry.address)
        .build()
        .unwrap();
    let address = format!("https://localhost:{}/v2/", registry.address.port());
    let answer = client.get(address).send().await.unwrap();
    assert_eq!(
        (answer.status(), answer.version()),
        (StatusCode::OK, Version::HTTP_2)
    );
}

#[tokio::test]
async fn what_is_under_way_is_finished_when_the_server_ends() {
    let mut registry = Running::start().await;
    let content = vec![9; 20 << 20];
    let digest = registry.push_blob("a", &content).await;
    let mut answer = registry.get(&format!("/v2/a/blobs/{digest}")).await;
    let mut received = answer.chunk().await.unwrap().unwrap().len();
    // An idle connection does not hold the server up.
    let idle = TcpStream::connect(registry.address).await.unwrap();
    registry.end();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if TcpStream::connect(registry.address).await.is_err() {
            break;
        }
    }
    assert!(
        TcpStream::connect(registry.address).await.is_err(),
        "it still listens"
    );
    while let Some(chunk) = answer.chunk().await.unwrap() {
        received += chunk.len();
    }
    assert_eq!(received, content.len());
    drop(answer);
    registry.ended().await;
    drop(idle);
}

#[tokio::test]
async fn requests_have_an_id_that_is_in_the_answer() {
    let registry = Running::start().await;
    let own = registry
        .request(Method::GET, "/v2/")
        .header("x-request-id", "mine-1");
    assert_eq!(own.send().await.unwrap().headers()["x-request-id"], "mine-1");
    assert_eq!(registry.get("/v2/").await.headers()["x-request-id"].len(), 16);
}

#[tokio::test]
async fn health_readiness_and_metrics_are_told() {
    let registry = Running::start().await;
    assert_eq!(registry.get("/healthz").await.text().await.unwrap(), "ok\n");
    assert_eq!(registry.get("/readyz").await.text().await.unwrap(), "ready\n");
    registry.get("/v2/a/tags/list").await;
    let text = registry.get("/metrics").await.text().await.unwrap();
    let line = "xebec_registry_requests_total{kind=\"tags\",method=\"GET\",status=\"404\"} 1";
    assert!(text.contains(line), "{text}");
    registry.registry.end();
    assert_eq!(
        registry.get("/readyz").await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(registry.get("/healthz").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_is_too_fast_waits_and_no_other_does() {
    let registry = Running::with(
        |server| {
            server.limits.rate = Rate::new(1, 3);
            server.proxies = vec!["127.0.0.1".parse().unwrap()];
        },
        |_| {},
    )
    .await;
    let ask = |path: &str, client: &str| {
        let request = registry.request(Method::GET, path);
        request.header("x-forwarded-for", client).send()
    };
    let mut passed = 0;
    let refused = loop {
        let answer = ask("/v2/", "192.0.2.1").await.unwrap();
        match answer.status() {
            StatusCode::OK => passed += 1,
            _ => break answer,
        }
        assert!(passed < 1000, "nothing is ever too fast");
    };
    assert!(passed >= 3, "{passed}");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait = refused.headers()["retry-after"].to_str().unwrap().to_owned();
    let text = refused.text().await.unwrap();
    assert!(
        text.contains("TOOMANYREQUESTS") && text.contains("requests_per_second"),
        "{text}"
    );
    for (path, client) in [
        ("/v2/", "192.0.2.2"),
        ("/healthz", "192.0.2.1"),
        ("/readyz", "192.0.2.1"),
        ("/metrics", "192.0.2.1"),
    ] {
        let answer = ask(path, client).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path} for {client}");
    }
    let figures = ask("/metrics", "192.0.2.1").await.unwrap().text().await.unwrap();
    let line = "xebec_registry_refused_total{reason=\"rate_of_one_client\"} 1";
    assert!(figures.contains(line), "{figures}");
    tokio::time::sleep(Duration::from_secs(wait.parse().unwrap())).await;
    let answer = ask("/v2/", "192.0.2.1").await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);

    // One host may take any address of its network of IPv6.
    let mut addresses = (1..1000).map(|number| format!("2001:db8::{number:x}"));
    let passes = async |address: String| ask("/v2/", &address).await.unwrap().status() == StatusCode::OK;
    let mut is_refused = false;
    while let Some(address) = addresses.next().filter(|_| !is_refused) {
        is_refused = !passes(address).await;
    }
    assert!(is_refused);
    assert!(passes("2001:db8:0:1::1".to_owned()).await);
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let registry = Running::start().await;
    let put = registry
        .request(Method::PUT, "/v2/a/tags/list")
        .send()
        .await
        .unwrap();
    assert_eq!(put.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(put.headers()["allow"], "GET, HEAD");
    assert_eq!(code(put).await, "UNSUPPORTED");
    assert_eq!(registry.get("/v1/search").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(registry.get("/v1/").await.status(), StatusCode::NOT_FOUND);
}

/// A connection that is kept answers several requests, also those that come at once.
#[tokio::test]
async fn requests_that_come_together_are_answered_in_order() {
    let registry = Running::start().await;
    let mut stream = TcpStream::connect(registry.address).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET /v2/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream
        .write_all(format!("{request}{request}{last}").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
    assert!(text.ends_with("{}"), "{text}");
}
