//! Tags and repositories, page by page.

use reqwest::StatusCode;
use serde_json::Value;

use crate::running::{Running, code};

async fn entries(registry: &Running, path: &str, field: &str) -> (Vec<String>, Option<String>) {
    let answer = registry.get(path).await;
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    let link = answer
        .headers()
        .get("link")
        .map(|link| link.to_str().unwrap().to_owned());
    let next = link.map(|link| {
        let address = link.strip_suffix(">; rel=\"next\"").unwrap();
        address.strip_prefix('<').unwrap().to_owned()
    });
    let list: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let entries = list[field].as_array().unwrap().iter();
    (
        entries.map(|entry| entry.as_str().unwrap().to_owned()).collect(),
        next,
    )
}

#[tokio::test]
async fn tags_come_in_order_and_in_pages() {
    let registry = Running::start().await;
    let (manifest, _) = registry.push_image("a/b", "c", b"layer").await;
    for tag in ["b", "e", "d", "a"] {
        registry.push_manifest("a/b", tag, &manifest).await;
    }
    let tags = |path: String| {
        let registry = &registry;
        async move { entries(registry, &path, "tags").await }
    };
    assert_eq!(
        tags("/v2/a/b/tags/list".to_owned()).await.0,
        ["a", "b", "c", "d", "e"]
    );
    let (mut all, mut next) = (Vec::new(), Some("/v2/a/b/tags/list?n=2".to_owned()));
    let mut pages = 0;
    while let Some(path) = next.take() {
        let (page, following) = tags(path).await;
        assert!(page.len() <= 2);
        all.extend(page);
        next = following;
        pages += 1;
    }
    assert_eq!((all.concat().as_str(), pages), ("abcde", 3));
    assert_eq!(tags("/v2/a/b/tags/list?n=0".to_owned()).await, (Vec::new(), None));
    assert_eq!(tags("/v2/a/b/tags/list?last=c".to_owned()).await.0, ["d", "e"]);
    assert_eq!(
        code(registry.get("/v2/a/b/tags/list?n=x").await).await,
        "PAGINATION_NUMBER_INVALID"
    );
    assert_eq!(
        code(registry.get("/v2/none/tags/list").await).await,
        "NAME_UNKNOWN"
    );
}

#[tokio::test]
async fn repositories_are_listed_while_they_have_something() {
    let registry = Running::start().await;
    assert_eq!(
        entries(&registry, "/v2/_catalog", "repositories").await.0,
        Vec::<String>::new()
    );
    for name in ["z", "a/b", "m"] {
        registry.push_blob(name, b"x").await;
    }
    let all = entries(&registry, "/v2/_catalog", "repositories").await;
    assert_eq!(all.0, ["a/b", "m", "z"]);
    let (first, next) = entries(&registry, "/v2/_catalog?n=1", "repositories").await;
    assert_eq!(first, ["a/b"]);
    assert_eq!(entries(&registry, &next.unwrap(), "repositories").await.0, ["m"]);
}
