//! The pages for people, over a registry that runs.

use reqwest::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, ORIGIN, WWW_AUTHENTICATE};
use reqwest::{Method, StatusCode};
use xebec_access::Guard;
use xebec_store::{Algorithm, Digest};
use xebec_testkit::compression::Compression;

use crate::auth::guard::World;
use crate::deduplication;
use crate::running::{Running, code};

async fn page(registry: &Running, path: &str) -> String {
    let answer = registry.get(path).await;
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    let policy = answer.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    answer.text().await.unwrap()
}

#[tokio::test]
async fn what_was_pushed_is_shown() {
    let registry = Running::start().await;
    assert!(
        page(&registry, "/")
            .await
            .contains("No repository is here that you may see")
    );
    let (_, digest) = registry.push_image("team/app", "1.0", b"layer").await;
    registry.push_image("other", "2.0", b"another layer").await;
    let all = page(&registry, "/").await;
    assert!(
        all.contains("/repositories/team/app") && all.contains("/repositories/other"),
        "{all}"
    );
    let found = page(&registry, "/?search=TEAM").await;
    assert!(
        found.contains("/repositories/team/app") && !found.contains("/repositories/other"),
        "{found}"
    );
    let tags = page(&registry, "/repositories/team/app").await;
    let address = format!("/repositories/team/app@{digest}");
    for part in ["1.0", &address, &registry.address.to_string(), "not lazy"] {
        assert!(tags.contains(part), "{part}: {tags}");
    }
    let image = page(&registry, &address).await;
    assert!(
        image.contains("Layers") && image.contains("not indexed"),
        "{image}"
    );
}

/// Of what there is much of, pages show a part, and say so.
#[tokio::test]
async fn much_is_counted_and_cut() {
    let registry = Running::start().await;
    let (manifest, _) = registry.push_image("many", "a000", b"one layer").await;
    for number in 1..150 {
        registry
            .push_manifest("many", &format!("a{number:03}"), &manifest)
            .await;
    }
    let (mut other, digest) = registry.push_image("many", "z-of-the-other", b"two").await;
    let image = page(&registry, &format!("/repositories/many@{digest}")).await;
    assert!(image.contains("z-of-the-other"), "{image}");
    assert!(!image.contains(" more."), "{image}");
    let all = page(&registry, "/").await;
    assert!(all.contains(">151<") && !all.contains("+<"), "{all}");
    let layer = other["layers"][0].clone();
    other["layers"] = vec![layer; 512].into();
    registry.push_manifest("many", "layers", &other).await;
    let digest = Digest::of(Algorithm::Sha256, other.to_string().as_bytes());
    let image = page(&registry, &format!("/repositories/many@{digest}")).await;
    assert!(image.contains("And 12 more."), "{image}");
}

#[tokio::test]
async fn what_is_not_there_says_so_and_nothing_is_an_error_of_the_server() {
    let registry = Running::start().await;
    registry.push_image("a", "1", b"layer").await;
    for path in [
        "/repositories/none",
        "/repositories/A%20B",
        "/repositories/..%2F..%2Fetc",
        "/repositories/a@sha256:0",
        "/repositories/%3Cscript%3E",
    ] {
        let answer = registry.get(path).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert!(!answer.text().await.unwrap().contains("<script>"), "{path}");
    }
}

#[tokio::test]
async fn style_and_script_come_from_here() {
    let registry = Running::start().await;
    for (path, kind) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let answer = registry.get(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert!(
            answer.headers()[CONTENT_TYPE].to_str().unwrap().starts_with(kind),
            "{path}"
        );
    }
    assert!(page(&registry, "/activity").await.contains("No request failed."));
}

#[tokio::test]
async fn browsers_see_what_everybody_may_and_log_in_by_a_password_for_the_rest() {
    let world = World::new();
    let registry = Running::with(|_| {}, |registry| registry.guard = world.guard()).await;
    assert!(page(&registry, "/").await.contains("href=\"/login\""));
    for path in ["/repositories/ci/app", "/login", "/activity"] {
        let answer = registry.get(path).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
        let challenge = answer.headers()[WWW_AUTHENTICATE].to_str().unwrap();
        assert!(challenge.starts_with("Basic "), "{path}: {challenge}");
    }
    let asked = registry
        .request(Method::GET, "/login")
        .basic_auth("anna", Some("secret"));
    let led = asked.send().await.unwrap();
    assert_eq!(led.url().path(), "/");
    let shown = led.text().await.unwrap();
    assert!(
        shown.contains("Logged in as anna") && !shown.contains("/login"),
        "{shown}"
    );
}

#[tokio::test]
async fn what_the_page_of_another_site_has_a_browser_send_changes_nothing() {
    let world = World::new();
    let registry = Running::with(|_| {}, |registry| registry.guard = world.guard()).await;
    let begin = |origin: String| {
        registry
            .request(Method::POST, "/v2/public/app/blobs/uploads/")
            .basic_auth("anna", Some("secret"))
            .header(ORIGIN, origin)
            .send()
    };
    let refused = begin("http://evil.example".to_owned()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(code(refused).await, "DENIED");
    let own = begin(format!("http://{}", registry.address)).await.unwrap();
    assert_eq!(own.status(), StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_saves_that_each_file_is_kept_once_is_shown() {
    let world = deduplication::World::new().await;
    let registry = &world.registry;
    let layers = [1, 2].map(|own| deduplication::layer(own, 300_000, Compression::Gzip(6)));
    let digests = world
        .push("team/app", &layers.each_ref().map(Vec::as_slice))
        .await;
    let pushed = page(registry, "/repositories/team/app").await;
    let before = pushed.contains("Its 3 blobs have") && !pushed.contains("kept as recipes");
    assert!(before, "{pushed}");
    world.take_apart().await;
    registry.get(&format!("/v2/team/app/blobs/{}", digests[0])).await;
    let shown = page(registry, "/space").await;
    for part in [
        "<svg class=\"bars\"",
        "Clients have pushed ",
        "with 9 files or parts of files",
        "<dt>Taken apart</dt><dd>2</dd>",
        "<dt>Waiting</dt><dd>0</dd>",
        "<dt>Too small</dt><dd>1</dd>",
        "Blobs restored ahead</th><td class=\"number\">0</td><td class=\"number\">0</td><td class=\"number\">1</td>",
        "href=\"/space\"",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let tags = page(registry, "/repositories/team/app").await;
    assert!(tags.contains("in 2 blobs, are kept as recipes"), "{tags}");
}

#[tokio::test]
async fn where_blobs_are_not_taken_apart_the_page_says_so() {
    let registry = Running::start().await;
    registry.push_image("a", "1", b"layer").await;
    let shown = page(&registry, "/space").await;
    for part in [
        "deduplication.enabled</code> is not set",
        "<dt>Would be taken apart</dt><dd>2</dd>",
        "7 B are stored, 100 % of that",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("Restoring"), "{shown}");
}

/// Sums say something of repositories that their reader may not see.
#[tokio::test]
async fn sums_over_all_repositories_are_for_administrators() {
    let world = World::new();
    let settings = world.settings("administrators = [\"user:anna\"]");
    let guard = Guard::new(settings, world.directory.path(), true).unwrap();
    let registry = Running::with(|_| {}, |registry| registry.guard = guard).await;
    assert_eq!(registry.get("/space").await.status(), StatusCode::UNAUTHORIZED);
    assert!(!page(&registry, "/").await.contains("/space"));
    for (name, status) in [("anna", StatusCode::OK), ("bob", StatusCode::NOT_FOUND)] {
        let ask = |path| {
            registry
                .request(Method::GET, path)
                .basic_auth(name, Some("secret"))
                .send()
        };
        let answer = ask("/space").await.unwrap();
        assert_eq!(answer.status(), status, "{name}");
        let text = answer.text().await.unwrap();
        assert_eq!(
            text.contains("<h1>Space</h1>"),
            status == StatusCode::OK,
            "{text}"
        );
        let all = ask("/").await.unwrap().text().await.unwrap();
        assert_eq!(
            all.contains("href=\"/space\""),
            status == StatusCode::OK,
            "{name}"
        );
    }
}
