//! Blobs come in by every way of the specification, and go out whole or in part.

use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use xebec_store::{Algorithm, Digest};

use crate::running::{Running, code};

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

async fn begin(registry: &Running) -> String {
    let answer = registry
        .request(Method::POST, "/v2/a/b/blobs/uploads/")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    answer.headers()["location"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_blob_comes_in_pieces_and_goes_out_in_parts() {
    let registry = Running::start().await;
    let content = content(300_000);
    let digest = Digest::of(Algorithm::Sha256, &content);
    let mut place = begin(&registry).await;
    for (number, piece) in content.chunks(100_000).enumerate() {
        let from = number * 100_000;
        let answer = registry
            .request(Method::PATCH, &place)
            .header("content-range", format!("{from}-{}", from + piece.len() - 1))
            .body(piece.to_vec())
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        assert_eq!(answer.headers()["range"], format!("0-{}", from + piece.len() - 1));
        place = answer.headers()["location"].to_str().unwrap().to_owned();
    }
    let finish = registry.request(Method::PUT, &format!("{place}?digest={digest}"));
    let answer = finish.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    let blob = answer.headers()["location"].to_str().unwrap().to_owned();
    let whole = registry.get(&blob).await;
    assert_eq!(whole.headers()["docker-content-digest"], digest.to_string());
    assert_eq!(whole.bytes().await.unwrap(), content);
    let part = registry
        .request(Method::GET, &blob)
        .header("range", "bytes=1000-1999")
        .send()
        .await
        .unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.headers()["content-range"], "bytes 1000-1999/300000");
    assert_eq!(part.bytes().await.unwrap(), content[1000..2000]);
    let head = registry.request(Method::HEAD, &blob).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], "300000");
    let outside = registry
        .request(Method::GET, &blob)
        .header("range", "bytes=300000-")
        .send()
        .await
        .unwrap();
    assert_eq!(outside.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(code(outside).await, "RANGE_INVALID");
}

#[tokio::test]
async fn a_part_that_is_not_the_next_one_is_refused_and_nothing_is_appended() {
    let registry = Running::start().await;
    let place = begin(&registry).await;
    let patch = |range: &'static str, body: &'static str| {
        let request = registry
            .request(Method::PATCH, &place)
            .header("content-range", range);
        async move { request.body(body).send().await.unwrap() }
    };
    assert_eq!(patch("0-3", "abcd").await.status(), StatusCode::ACCEPTED);
    for range in ["0-3", "5-8", "3-6"] {
        let answer = patch(range, "efgh").await;
        assert_eq!(answer.status(), StatusCode::RANGE_NOT_SATISFIABLE, "{range}");
        assert_eq!(answer.headers()["range"], "0-3");
        assert_eq!(code(answer).await, "RANGE_INVALID");
    }
    assert_eq!(code(patch("4-9", "efgh").await).await, "SIZE_INVALID");
    assert_eq!(code(patch("x", "efgh").await).await, "BLOB_UPLOAD_INVALID");
    let state = registry.get(&place).await;
    assert_eq!(state.status(), StatusCode::NO_CONTENT);
    assert_eq!(state.headers()["range"], "0-3");
    let digest = Digest::of(Algorithm::Sha256, b"abcd");
    let finished = registry
        .request(Method::PUT, &format!("{place}?digest={digest}"))
        .send()
        .await
        .unwrap();
    assert_eq!(finished.status(), StatusCode::CREATED);
}

/// The connection breaks in the middle of a body. The bytes before that are kept, and the client goes on after it.
#[tokio::test]
async fn an_upload_that_was_cut_off_goes_on() {
    let registry = Running::start().await;
    let content = content(700_000);
    let place = begin(&registry).await;
    let mut stream = TcpStream::connect(registry.address).await.unwrap();
    let head = format!(
        "PATCH {place} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nContent-Range: 0-{}\r\n\r\n",
        content.len(),
        content.len() - 1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&content[..400_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    let mut kept = 0;
    for _ in 0..100 {
        let state = registry.get(&place).await;
        assert_eq!(state.status(), StatusCode::NO_CONTENT);
        let range = state.headers()["range"].to_str().unwrap().to_owned();
        kept = range.strip_prefix("0-").unwrap().parse::<usize>().unwrap() + 1;
        if kept == 400_000 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(kept, 400_000);
    let digest = Digest::of(Algorithm::Sha512, &content);
    let answer = registry
        .request(Method::PUT, &format!("{place}?digest={digest}"))
        .header("content-range", format!("{kept}-{}", content.len() - 1))
        .body(content[kept..].to_vec())
        .send()
        .await
        .unwrap();
    assert_eq!(
        answer.status(),
        StatusCode::CREATED,
        "{}",
        answer.text().await.unwrap()
    );
    let blob = registry.get(&format!("/v2/a/b/blobs/{digest}")).await;
    assert_eq!(blob.bytes().await.unwrap(), content);
}

#[tokio::test]
async fn bytes_of_another_digest_are_refused_and_not_kept() {
    let registry = Running::start().await;
    let digest = Digest::of(Algorithm::Sha256, b"one");
    let post = registry.request(Method::POST, &format!("/v2/a/b/blobs/uploads/?digest={digest}"));
    assert_eq!(
        code(post.body("two").send().await.unwrap()).await,
        "DIGEST_INVALID"
    );
    let place = begin(&registry).await;
    let put = registry.request(Method::PUT, &format!("{place}?digest={digest}"));
    assert_eq!(
        code(put.body("two").send().await.unwrap()).await,
        "DIGEST_INVALID"
    );
    for wrong in ["", "?digest=md5:abc", "?digest=sha256:..%2f.."] {
        let place = begin(&registry).await;
        let put = registry
            .request(Method::PUT, &format!("{place}{wrong}"))
            .send()
            .await
            .unwrap();
        assert_eq!(code(put).await, "DIGEST_INVALID", "{wrong}");
    }
    assert_eq!(
        code(registry.get(&format!("/v2/a/b/blobs/{digest}")).await).await,
        "BLOB_UNKNOWN"
    );
}

#[tokio::test]
async fn a_blob_is_mounted_with_and_without_a_source() {
    let registry = Running::start().await;
    let digest = registry.push_blob("a/b", b"shared").await;
    for (to, query) in [
        ("c", format!("mount={digest}&from=a/b")),
        ("d", format!("mount={digest}")),
    ] {
        let answer = registry.request(Method::POST, &format!("/v2/{to}/blobs/uploads/?{query}"));
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED, "{query}");
        let blob = registry.get(&format!("/v2/{to}/blobs/{digest}")).await;
        assert_eq!(blob.bytes().await.unwrap(), "shared");
    }
    let unknown = Digest::of(Algorithm::Sha256, b"unknown");
    for query in [
        format!("mount={digest}&from=x/y"),
        format!("mount={digest}&from=..%2fa"),
        format!("mount={unknown}"),
    ] {
        let answer = registry.request(Method::POST, &format!("/v2/e/blobs/uploads/?{query}"));
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::ACCEPTED, "{query}");
        assert!(answer.headers().contains_key("location"));
    }
    let answer = registry
        .request(Method::DELETE, &format!("/v2/c/blobs/{digest}"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    assert_eq!(
        code(registry.get(&format!("/v2/c/blobs/{digest}")).await).await,
        "BLOB_UNKNOWN"
    );
    assert_eq!(
        registry.get(&format!("/v2/d/blobs/{digest}")).await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn an_upload_is_given_up() {
    let registry = Running::start().await;
    let place = begin(&registry).await;
    let cancel = || registry.request(Method::DELETE, &place).send();
    assert_eq!(cancel().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(code(cancel().await.unwrap()).await, "BLOB_UPLOAD_UNKNOWN");
    assert_eq!(code(registry.get(&place).await).await, "BLOB_UPLOAD_UNKNOWN");
    assert_eq!(
        code(registry.get("/v2/a/b/blobs/uploads/..x").await).await,
        "BLOB_UPLOAD_UNKNOWN"
    );
}

#[tokio::test]
async fn a_blob_of_no_bytes_is_one() {
    let registry = Running::start().await;
    let digest = registry.push_blob("a", b"").await;
    let answer = registry.get(&format!("/v2/a/blobs/{digest}")).await;
    assert_eq!(answer.headers()["content-length"], "0");
    assert_eq!(answer.bytes().await.unwrap(), "");
}
