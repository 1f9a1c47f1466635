//! The list of repositories by rights: the callers that may ask for it, the names that they are shown, and that no page and no link
//! names anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, StatusCode};
use proptest::prelude::*;
use serde_json::Value;
use xebec_access::Guard;
use xebec_registry_server::api;
use xebec_registry_server::body::RequestBody;
use xebec_registry_server::page::activity::Entry;
use xebec_registry_server::state::Registry;
use xebec_store::{Algorithm, Digest, NewManifest, Store, StoreConfig};

use crate::auth::guard::{World, basic};
use crate::running::OCI_MANIFEST;

/// An answer, as far as these tests look at it.
struct Answered {
    status: StatusCode,
    link: Option<String>,
    challenge: String,
    text: String,
}

/// A request without a connection.
async fn ask(registry: &Registry, path: &str, authorization: Option<&str>) -> Answered {
    let mut request = Request::get(path).header("host", "registry.example");
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    let parts = request.body(()).unwrap().into_parts().0;
    let mut body = RequestBody::new(Empty::<Bytes>::new(), Duration::from_secs(1));
    let (head, body) = api::answer(registry, &parts, &mut body).await.into_parts();
    let header = |name: &str| Some(head.headers.get(name)?.to_str().unwrap().to_owned());
    let bytes = body.collect().await.unwrap().to_bytes();
    Answered {
        status: head.status,
        link: header("link"),
        challenge: header("www-authenticate").unwrap_or_default(),
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

impl Answered {
    /// The names of a page of the API.
    fn names(&self) -> Vec<String> {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        let list: Value = serde_json::from_str(&self.text).unwrap();
        let names = list["repositories"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// The address of the next page of the API.
    fn next(&self) -> Option<String> {
        let address = self.link.as_deref()?.strip_suffix(">; rel=\"next\"").unwrap();
        Some(address.strip_prefix('<').unwrap().to_owned())
    }

    /// The names of a page for people.
    fn shown(&self) -> Vec<String> {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        let links = self.text.split("href=\"/repositories/").skip(1);
        links
            .map(|link| link.split('"').next().unwrap().to_owned())
            .collect()
    }

    /// The address behind "More".
    fn more(&self) -> Option<String> {
        let address = self.text.split("rel=\"next\" href=\"").nth(1)?;
        Some(address.split('"').next().unwrap().replace("&amp;", "&"))
    }
}

/// A store with a manifest in each of these repositories.
async fn filled(root: &Path, names: impl IntoIterator<Item = String>) -> Store {
    let store = Store::open(&StoreConfig::new(root.join("store"))).await.unwrap();
    let content = Bytes::from_static(b"{}");
    let manifest = NewManifest {
        digest: Digest::of(Algorithm::Sha256, &content),
        media_type: OCI_MANIFEST.to_owned(),
        content,
        references: Vec::new(),
        subject: None,
        artifact_type: None,
        annotations: BTreeMap::new(),
        immutable: Vec::new(),
        is_pushed: true,
    };
    let names: Vec<String> = names.into_iter().collect();
    let put = names.iter().map(|name| async {
        let name = name.parse().unwrap();
        store.put_manifest(&name, &manifest, &[]).await.unwrap();
    });
    futures_util::future::join_all(put).await;
    store
}

fn registry(store: &Store, guard: Guard) -> Registry {
    let mut registry = Registry::new(store.clone());
    registry.guard = guard;
    registry
}

/// The registry of [`World`] with a few repositories, and what its `[auth]` says besides.
async fn of(world: &World, more: &str) -> Registry {
    let names = ["ci/app", "ci/base", "other", "public/a", "public/b"].map(str::to_owned);
    let store = filled(world.directory.path(), names).await;
    let guard = Guard::new(world.settings(more), world.directory.path(), true).unwrap();
    registry(&store, guard)
}

/// A token for the list, as clients get it after the challenge.
async fn token(registry: &Registry, authorization: Option<&str>) -> String {
    let path = "/token?service=registry.example&scope=registry:catalog:*";
    let answered = ask(registry, path, authorization).await;
    let answer: Value = serde_json::from_str(&answered.text).unwrap();
    format!("Bearer {}", answer["token"].as_str().unwrap())
}

#[tokio::test]
async fn each_sees_what_they_may_pull() {
    let world = World::new();
    let registry = of(&world, "administrators = ['user:bob']").await;
    let account = format!("Bearer {}", world.service_account());
    let anna = basic("anna", "secret");
    let bob = basic("bob", "secret");
    let all = ["ci/app", "ci/base", "other", "public/a", "public/b"];
    for (who, expected) in [
        (&anna, &["public/a", "public/b"][..]),
        (&account, &["ci/app", "ci/base", "public/a", "public/b"][..]),
        (&bob, &all[..]),
    ] {
        let listed = ask(&registry, "/v2/_catalog", Some(who)).await;
        assert_eq!((listed.names(), listed.link), (of_texts(expected), None));
    }
    // The same by a token, which names no repository.
    for (who, expected) in [(&anna, &["public/a", "public/b"][..]), (&bob, &all[..])] {
        let token = token(&registry, Some(who)).await;
        let listed = ask(&registry, "/v2/_catalog", Some(&token)).await;
        assert_eq!(listed.names(), of_texts(expected));
    }
    let wrong = ask(&registry, "/v2/_catalog", Some(&basic("anna", "wrong"))).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
}

fn of_texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Clients that have a login must come to use it, so the first answer asks for one.
#[tokio::test]
async fn strangers_see_what_everybody_may_pull_by_the_token_of_a_stranger() {
    let world = World::new();
    let by_token = of(&world, "").await;
    let first = ask(&by_token, "/v2/_catalog", None).await;
    assert_eq!(first.status, StatusCode::UNAUTHORIZED);
    assert!(
        first.challenge.contains(r#"scope="registry:catalog:*""#),
        "{}",
        first.challenge
    );
    let token = token(&by_token, None).await;
    let listed = ask(&by_token, "/v2/_catalog", Some(&token)).await;
    assert_eq!(listed.names(), ["public/a", "public/b"]);
    // A token that was not asked for with this scope is none for the list.
    let other = ask(&by_token, "/token?scope=repository:public/a:pull", None).await;
    let other: Value = serde_json::from_str(&other.text).unwrap();
    let other = format!("Bearer {}", other["token"].as_str().unwrap());
    let refused = ask(&by_token, "/v2/_catalog", Some(&other)).await;
    assert!(
        refused.challenge.contains("insufficient_scope"),
        "{}",
        refused.challenge
    );

    // Where clients log in by a password, a stranger could show nothing.
    let world = World::new();
    let by_password = of(&world, "challenge = 'basic'").await;
    let listed = ask(&by_password, "/v2/_catalog", None).await;
    assert_eq!(listed.names(), ["public/a", "public/b"]);
}

#[tokio::test]
async fn strangers_are_refused_where_they_may_pull_nothing() {
    let world = World::new();
    let store = filled(world.directory.path(), ["ci/app".to_owned()]).await;
    let mut settings = world.settings("challenge = 'basic'");
    let is_public = |pattern: &str| pattern.starts_with("public");
    settings
        .rules
        .retain(|rule| !is_public(&rule.repositories.to_string()));
    let guard = Guard::new(settings, world.directory.path(), true).unwrap();
    let registry = registry(&store, guard);
    let stranger = ask(&registry, "/v2/_catalog", None).await;
    assert_eq!(stranger.status, StatusCode::UNAUTHORIZED);
    let anna = ask(&registry, "/v2/_catalog", Some(&basic("anna", "secret"))).await;
    assert_eq!(anna.names(), Vec::<String>::new());
}

#[tokio::test]
async fn the_configuration_may_say_who_may_ask_at_all() {
    let world = World::new();
    let narrow = of(&world, "catalog = ['user:bob']").await;
    for (who, status) in [
        (None, StatusCode::UNAUTHORIZED),
        (Some(basic("anna", "secret")), StatusCode::FORBIDDEN),
    ] {
        let refused = ask(&narrow, "/v2/_catalog", who.as_deref()).await;
        assert_eq!(refused.status, status, "{who:?}");
    }
    let bob = ask(&narrow, "/v2/_catalog", Some(&basic("bob", "secret"))).await;
    assert_eq!(bob.names(), ["public/a", "public/b"]);

    let world = World::new();
    let wide = of(&world, "catalog = ['anyone']").await;
    let stranger = ask(&wide, "/v2/_catalog", None).await;
    assert_eq!(stranger.names(), ["public/a", "public/b"]);
}

#[tokio::test]
async fn any_node_goes_on_where_another_ended_and_another_registry_does_not() {
    let world = World::new();
    let mut one = of(&world, "").await;
    one.settings.looked_at = 1;
    let two = registry(&one.store, world.guard());
    let anna = basic("anna", "secret");
    let first = ask(&one, "/v2/_catalog", Some(&anna)).await;
    assert_eq!(first.names(), Vec::<String>::new());
    let next = first.next().unwrap();
    assert!(
        next.starts_with("/v2/_catalog?n=1000&last=~") && !next.contains("ci/"),
        "{next}"
    );
    let rest = ask(&two, &next, Some(&anna)).await;
    assert_eq!(rest.names(), ["public/a", "public/b"]);

    let elsewhere = World::new();
    let other = registry(&one.store, elsewhere.guard());
    let refused = ask(&other, &next, Some(&anna)).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text.contains("Link"), "{}", refused.text);
    // A person is shown the first page.
    let place = next.split("last=").nth(1).unwrap();
    let page = ask(&other, &format!("/?after={place}"), Some(&anna)).await;
    assert_eq!(page.shown(), ["public/a", "public/b"]);
}

/// Its path may name a repository that somebody may not see.
#[tokio::test]
async fn what_failed_is_shown_by_rights() {
    let world = World::new();
    let registry = of(&world, "administrators = ['user:bob']\nchallenge = 'basic'").await;
    for (path, repository) in [
        ("/v2/public/a/tags/list", Some("public/a")),
        ("/v2/ci/app/tags/list", Some("ci/app")),
        ("/repositories/ci/base?", None),
    ] {
        registry.activity.failed(Entry {
            at_ms: 0,
            request: format!("GET {path}"),
            repository: repository.map(str::to_owned),
            status: 500,
            took_ms: 1,
            id: "x".to_owned(),
        });
    }
    let shown = async |who: Option<&str>| {
        let page = ask(&registry, "/activity", who).await;
        let parts = ["public/a", "ci/app", "ci/base"].map(|part| page.text.contains(part));
        (page.status, parts)
    };
    let (anna, bob) = (basic("anna", "secret"), basic("bob", "secret"));
    assert_eq!(shown(Some(&anna)).await, (StatusCode::OK, [true, false, false]));
    assert_eq!(shown(Some(&bob)).await, (StatusCode::OK, [true; 3]));
    assert_eq!(shown(None).await, (StatusCode::UNAUTHORIZED, [false; 3]));
}

/// So many repositories are there in the property tests. Their names cannot come about by chance.
const THERE: usize = 90;

fn nth(number: usize) -> String {
    format!("tenant-{:02}/of-{number:02}", number % 7)
}

fn sorted(numbers: &BTreeSet<usize>) -> Vec<String> {
    let names: BTreeSet<String> = numbers.iter().copied().map(nth).collect();
    names.into_iter().collect()
}

/// A guard that shows strangers these repositories, and nothing else.
fn showing(visible: &BTreeSet<usize>, root: &Path) -> Guard {
    let rule =
        |name: &str| format!("[[rule]]\nrepositories = '{name}'\nwho = ['anyone']\nactions = ['pull']\n");
    let rules = visible.iter().map(|number| rule(&nth(*number)));
    let rules: String = rules.chain([rule("none/of/them")]).collect();
    Guard::new(toml::from_str(&rules).unwrap(), root, false).unwrap()
}

/// Few, most, or any of them.
fn some_of_them() -> impl Strategy<Value = BTreeSet<usize>> {
    let any = || prop::collection::btree_set(0..THERE, 0..THERE);
    prop_oneof![
        prop::collection::btree_set(0..THERE, 0..4),
        prop::collection::btree_set(0..THERE, 0..4)
            .prop_map(|hidden| (0..THERE).filter(|number| !hidden.contains(number)).collect()),
        any(),
    ]
}

/// Follows a list to its end. Each page and the way to the next must name nothing that is not visible.
async fn all_pages(
    registry: &Registry,
    first: &str,
    visible: &[String],
    page: impl Fn(&Answered) -> (Vec<String>, Option<String>),
) -> (Vec<String>, usize) {
    let hidden = (0..THERE).map(nth).filter(|name| !visible.contains(name));
    let hidden: Vec<String> = hidden.collect();
    let (mut all, mut pages) = (Vec::new(), 0);
    let mut path = Some(first.to_owned());
    while let Some(asked) = path.take() {
        let answered = ask(registry, &asked, None).await;
        let (names, next) = page(&answered);
        for name in &hidden {
            assert!(!answered.text.contains(name.as_str()), "{name} on {asked}");
            assert!(
                !answered.link.as_ref().is_some_and(|link| link.contains(name)),
                "{name} in the link of {asked}"
            );
        }
        if let Some(next) = &next {
            let place = next.split_once("last=").or_else(|| next.split_once("after="));
            let place = place.unwrap().1;
            assert!(
                place.starts_with('~') || visible.iter().any(|name| name == place),
                "{next}"
            );
        }
        all.extend(names);
        pages += 1;
        assert!(pages <= THERE + 1, "the pages have no end");
        path = next;
    }
    (all, pages)
}

#[test]
fn all_pages_together_are_what_is_visible_and_nothing_else_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = runtime.block_on(filled(directory.path(), (0..THERE).map(nth)));
    let cases = (some_of_them(), 1..50_usize, 1..100_usize);
    let config = ProptestConfig::with_cases(64);
    proptest!(config, |((visible, n, looked_at) in cases)| {
        let mut registry = registry(&store, showing(&visible, directory.path()));
        registry.settings.looked_at = looked_at;
        let visible = sorted(&visible);
        let first = format!("/v2/_catalog?n={n}");
        let of_api = |answered: &Answered| {
            let names = answered.names();
            assert!(names.len() <= n, "{names:?}");
            (names, answered.next())
        };
        let (all, pages) = runtime.block_on(all_pages(&registry, &first, &visible, of_api));
        prop_assert_eq!(&all, &visible);
        // No page looks at more than it may.
        prop_assert!(pages * looked_at >= THERE, "{} pages", pages);
        // One that is full is the last only if nothing visible follows.
        if looked_at >= THERE {
            prop_assert_eq!(pages, visible.len().div_ceil(n).max(1));
        }
    });
}

#[test]
fn pages_for_people_lead_to_all_that_is_visible_and_name_nothing_else() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = runtime.block_on(filled(directory.path(), (0..THERE).map(nth)));
    let cases = (
        some_of_them(),
        1..100_usize,
        prop::sample::select(vec!["", "of-1", "tenant-03"]),
    );
    let config = ProptestConfig::with_cases(32);
    proptest!(config, |((visible, looked_at, search) in cases)| {
        let mut registry = registry(&store, showing(&visible, directory.path()));
        registry.settings.looked_at = looked_at;
        let visible = sorted(&visible);
        let first = format!("/?search={search}");
        let of_page = |answered: &Answered| (answered.shown(), answered.more());
        let (all, _) = runtime.block_on(all_pages(&registry, &first, &visible, of_page));
        let found: Vec<String> = visible.into_iter().filter(|name| name.contains(search)).collect();
        prop_assert_eq!(all, found);
    });
}
