//! Layers are pushed without what the registry has of them, and no more of it is told or used than the caller may pull.

use std::io::Write as _;

use reqwest::{Method, Response, StatusCode};
use xebec_assembly::{RECIPE, pack, take_apart, write_contents};
use xebec_native::PUSH;
use xebec_native::push::{
    BITMAP_TYPE, Bitmap, Cut, MAX_CONTENTS, MAX_SOURCES, Offer, PARCEL_TYPE, ParcelHead, QUESTION_TYPE,
    Question, Source,
};
use xebec_recipe::{Blob, ChunkId, Cutter, Recipe};
use xebec_store::{Algorithm, Digest};
use xebec_testkit::compression::Compression;

use crate::auth::guard::{World as Guarded, basic};
use crate::deduplication::{World, blob_path, layer, take_apart as take_all_apart};
use crate::running::code;

const TEAM: &str = "team/app";

/// A layer that is pushed.
struct Pushed {
    blob: Vec<u8>,
    digest: Digest,
    recipe: Recipe,
}

impl Pushed {
    fn new(blob: Vec<u8>) -> Self {
        let digest = Digest::of(Algorithm::Sha256, &blob);
        Self::named(blob, digest)
    }

    /// One that is said to be another blob.
    fn named(blob: Vec<u8>, digest: Digest) -> Self {
        let of = Blob {
            digest: digest.to_string(),
            size: blob.len() as u64,
        };
        let recipe = take_apart(&blob[..], of, Cutter::Files, RECIPE).unwrap();
        Self { blob, digest, recipe }
    }

    fn question(&self, sources: &[Source]) -> Vec<u8> {
        let contents = self.recipe.chunks().map(|(id, length)| (id.0, length));
        let question = Question {
            sources: sources.to_vec(),
            contents: contents.collect(),
        };
        question.encode().unwrap()
    }

    /// All of it but what is left out.
    fn parcel(&self, sources: &[Source], left_out: &Bitmap) -> Vec<u8> {
        let recipe = self.recipe.to_bytes();
        let head = ParcelHead {
            sources: sources.to_vec(),
            recipe: recipe.len() as u64,
            contents: left_out.len() as u64,
        };
        let mut parcel = head.encode().unwrap();
        parcel.extend_from_slice(&recipe);
        parcel.extend_from_slice(left_out.as_bytes());
        let ids: Vec<ChunkId> = self.recipe.chunks().map(|(id, _)| id).collect();
        let is_sent = |id: &ChunkId| !left_out.has(ids.iter().position(|other| other == id).unwrap());
        let mut contents = pack(&mut parcel).unwrap();
        write_contents(&self.recipe, &self.blob[..], &is_sent, &mut contents).unwrap();
        contents.finish().unwrap().flush().unwrap();
        parcel
    }

    fn nothing_left_out(&self) -> Bitmap {
        Bitmap::new(self.recipe.chunks().len())
    }
}

fn of(repository: Option<&str>, layer: &Digest) -> Source {
    Source {
        repository: repository.map(str::to_owned),
        layer: layer.to_string(),
    }
}

/// Asks and sends as somebody.
struct Asking<'w> {
    world: &'w World,
    user: Option<&'static str>,
}

impl Asking<'_> {
    async fn send(&self, method: Method, repository: &str, kind: &str, body: Vec<u8>) -> Response {
        let path = format!("/v2/{repository}/{PUSH}");
        let mut request = self
            .world
            .registry
            .request(method, &path)
            .header("content-type", kind);
        if let Some(user) = self.user {
            request = request.header("authorization", basic(user, "secret"));
        }
        request.body(body).send().await.unwrap()
    }

    async fn ask(&self, repository: &str, pushed: &Pushed, sources: &[Source]) -> Bitmap {
        let answer = self
            .send(Method::POST, repository, QUESTION_TYPE, pushed.question(sources))
            .await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], BITMAP_TYPE);
        let bytes = answer.bytes().await.unwrap();
        Bitmap::from_bytes(&bytes, pushed.recipe.chunks().len()).unwrap()
    }

    async fn put(&self, repository: &str, parcel: Vec<u8>) -> Response {
        self.send(Method::PUT, repository, PARCEL_TYPE, parcel).await
    }
}

fn as_anybody(world: &World) -> Asking<'_> {
    Asking { world, user: None }
}

fn set(bitmap: &Bitmap) -> usize {
    (0..bitmap.len()).filter(|number| bitmap.has(*number)).count()
}

/// Puts a layer into a repository as nobody's request does.
async fn store(world: &World, repository: &str, layer: &[u8]) -> Digest {
    let (store, repository) = (world.store(), repository.parse().unwrap());
    let digest = Digest::of(Algorithm::Sha256, layer);
    let id = store.begin_upload(&repository).await.unwrap();
    let body = futures_util::stream::iter([Ok(bytes::Bytes::copy_from_slice(layer))]);
    store.append(&repository, &id, None, body).await.unwrap();
    store.finish_upload(&repository, &id, &digest).await.unwrap();
    digest
}

/// Nothing of a push is in the registry: no blob, and no upload.
async fn nothing_is_left(world: &World, digest: &Digest, repository: &str) {
    for _ in 0..200 {
        let usage = world.store().usage(repository).await.unwrap();
        if usage.uploads == 0 && world.store().any_blob(digest).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("something is left of {digest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_comes_without_what_is_here_and_is_the_same_blob() {
    let world = World::new().await;
    for compression in [Compression::Gzip(6), Compression::Zstd, Compression::Tar] {
        let before = layer(1, 600_000, compression);
        let known = world.push(TEAM, &[&before]).await[0].clone();
        world.take_apart().await;
        let pushed = Pushed::new(layer(2, 600_000, compression));
        let asking = as_anybody(&world);
        let sources = [of(None, &known)];
        let here = asking.ask(TEAM, &pushed, &sources).await;
        assert_eq!((here.len(), set(&here)), (6, 3));
        let parcel = pushed.parcel(&sources, &here);
        let sent = parcel.len();
        assert!(
            sent < pushed.blob.len() * 3 / 4,
            "{sent} of {}",
            pushed.blob.len()
        );
        let answer = asking.put(TEAM, parcel).await;
        assert_eq!(
            answer.status(),
            StatusCode::CREATED,
            "{}",
            answer.text().await.unwrap()
        );
        assert_eq!(
            answer.headers()["docker-content-digest"],
            pushed.digest.to_string()
        );
        assert_eq!(answer.headers()["location"], blob_path(TEAM, &pushed.digest));
        let pulled = world.registry.get(&blob_path(TEAM, &pushed.digest)).await;
        assert!(pulled.bytes().await.unwrap() == pushed.blob);
        let metrics = world.registry.get("/metrics").await.text().await.unwrap();
        assert!(
            metrics.contains("xebec_registry_assembled_total{outcome=\"done\"}"),
            "{metrics}"
        );
    }
    let usage = world.store().usage(TEAM).await.unwrap();
    assert_eq!(usage.uploads, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_keeps_no_files_once_offers_nothing() {
    let world = World::with(|registry| registry.deduplicates = false).await;
    let answer = world.registry.get(&format!("/v2/{TEAM}/{PUSH}")).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let world = World::new().await;
    let answer = world.registry.get(&format!("/v2/{TEAM}/{PUSH}")).await;
    let offer: Offer = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(offer.cut, Cut::Files);
    // What nobody asks so.
    let asking = as_anybody(&world);
    let other = asking.send(Method::POST, TEAM, "text/plain", Vec::new()).await;
    assert_eq!(other.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// Anna may read and push `public/**`. Others' files are not hers, whatever she knows of them.
#[tokio::test(flavor = "multi_thread")]
async fn contents_of_what_the_caller_may_not_pull_are_neither_told_nor_used() {
    let guarded = Guarded::new();
    let world = World::with(|registry| registry.guard = guarded.guard()).await;
    let secret = layer(1, 300_000, Compression::Gzip(6));
    let hidden = store(&world, "secret/app", &secret).await;
    let shown = store(&world, "public/base", &layer(5, 300_000, Compression::Gzip(6))).await;
    take_all_apart(world.store()).await;
    let anna = Asking {
        world: &world,
        user: Some("anna"),
    };
    let pushed = Pushed::new(secret);
    // By the name of the repository, and by the digest alone, as if it were here.
    for source in [
        of(Some("secret/app"), &hidden),
        of(None, &hidden),
        of(Some("public/base"), &hidden),
    ] {
        let here = anna
            .ask("public/new", &pushed, std::slice::from_ref(&source))
            .await;
        assert_eq!(set(&here), 0);
        let mut claimed = pushed.nothing_left_out();
        (0..claimed.len()).for_each(|number| claimed.set(number));
        let answer = anna.put("public/new", pushed.parcel(&[source], &claimed)).await;
        assert_eq!(answer.status(), StatusCode::CONFLICT);
    }
    let store = world.store();
    assert!(
        store
            .peek_blob(&"public/new".parse().unwrap(), &pushed.digest)
            .await
            .unwrap()
            .is_none()
    );
    // What she may pull is hers to use: half of the files are in both.
    let sources = [of(Some("public/base"), &shown)];
    let here = anna.ask("public/new", &pushed, &sources).await;
    assert_eq!(set(&here), 3);
    let answer = anna.put("public/new", pushed.parcel(&sources, &here)).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    // A user with the right to pull alone puts nothing together.
    let bob = Asking {
        world: &world,
        user: Some("bob"),
    };
    let answer = bob.put("public/new", pushed.parcel(&sources, &here)).await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_another_digest_is_refused_and_nothing_is_left() {
    let world = World::new().await;
    let asking = as_anybody(&world);
    let blob = layer(2, 300_000, Compression::Gzip(6));
    let other = Digest::of(Algorithm::Sha256, b"another blob");
    let pushed = Pushed::named(blob, other.clone());
    let answer = asking
        .put(TEAM, pushed.parcel(&[], &pushed.nothing_left_out()))
        .await;
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert_eq!(code(answer).await, "DIGEST_INVALID");
    nothing_is_left(&world, &other, TEAM).await;
    nothing_is_left(&world, &Digest::of(Algorithm::Sha256, &pushed.blob), TEAM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parcel_that_ends_too_soon_leaves_nothing() {
    let world = World::new().await;
    let asking = as_anybody(&world);
    let pushed = Pushed::new(layer(2, 300_000, Compression::Gzip(6)));
    let parcel = pushed.parcel(&[], &pushed.nothing_left_out());
    for end in [0, 5, 12, 40, 200, parcel.len() / 2, parcel.len() - 1] {
        let answer = asking.put(TEAM, parcel[..end].to_vec()).await;
        assert!(answer.status().is_client_error(), "{end}: {}", answer.status());
    }
    nothing_is_left(&world, &pushed.digest, TEAM).await;
    // The connection breaks in the middle.
    let address = world.registry.address;
    let half = parcel[..parcel.len() / 2].to_vec();
    let head = format!(
        "PUT /v2/{TEAM}/{PUSH} HTTP/1.1\r\nhost: a\r\ncontent-type: {PARCEL_TYPE}\r\ncontent-length: {}\r\n\r\n",
        parcel.len()
    );
    let sending = tokio::task::spawn_blocking(move || {
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        connection.write_all(head.as_bytes()).unwrap();
        connection.write_all(&half).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
    sending.await.unwrap();
    nothing_is_left(&world, &pushed.digest, TEAM).await;
    // All of it is a blob.
    assert_eq!(asking.put(TEAM, parcel).await.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_the_limits_is_refused() {
    let world = World::new().await;
    let asking = as_anybody(&world);
    let prefixed = |magic: &[u8], head: &str| {
        let length = u32::try_from(head.len()).unwrap().to_le_bytes();
        [magic, &length, head.as_bytes()].concat()
    };
    let many = "{\"layer\":\"sha256:a\"},".repeat(MAX_SOURCES + 1);
    let many = format!("{{\"sources\":[{}]}}", many.trim_end_matches(','));
    let mut contents = prefixed(b"XEBECPQ1", "{\"sources\":[]}");
    contents.resize(contents.len() + 36 * (MAX_CONTENTS + 1), 7);
    for question in [prefixed(b"XEBECPQ1", &many), contents, b"XEBEC".to_vec()] {
        let answer = asking.send(Method::POST, TEAM, QUESTION_TYPE, question).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    }
    let mut long = prefixed(b"XEBECPQ1", "{\"sources\":[]}");
    long.resize(11 << 20, 0);
    let answer = asking.send(Method::POST, TEAM, QUESTION_TYPE, long).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    for head in [
        format!(
            "{{\"sources\":[],\"recipe\":1,\"contents\":{}}}",
            MAX_CONTENTS + 1
        ),
        "{\"sources\":[],\"recipe\":99999999,\"contents\":1}".to_owned(),
    ] {
        let answer = asking.put(TEAM, prefixed(b"XEBECPL1", &head)).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    }
}
