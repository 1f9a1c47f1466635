//! The pages for people, over a registry that runs.

use reqwest::StatusCode;
use reqwest::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};

use crate::running::Running;

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
            .contains("No repository has an image yet")
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
