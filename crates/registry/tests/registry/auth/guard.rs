//! The guard as a whole: the answer to each caller.

use std::sync::Arc;

use base64::Engine as _;
use hyper::Request;
use hyper::http::request::Parts;
use parking_lot::Mutex;
use serde_json::json;
use xebec_access::settings::AuthSettings;
use xebec_access::{Action, Guard, Need, Observer, Refusal};
use xebec_kernel::clock::seconds_since_1970;
use xebec_settings::period::Period;

use super::logins::{bcrypt, htpasswd};
use super::signing::{Issuer, claims, claims_with, set};

/// A registry with the user anna, a rule of each kind, and an OIDC issuer and a token service by files.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    pub(super) oidc: Issuer,
    pub(super) service: Issuer,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        htpasswd(&directory, &format!("anna:{0}\nbob:{0}\n", bcrypt()));
        let (oidc, service) = (Issuer::p256(), Issuer::rsa());
        std::fs::write(directory.path().join("oidc.json"), set(&[(&oidc, "one")])).unwrap();
        std::fs::write(directory.path().join("service.json"), set(&[(&service, "one")])).unwrap();
        Self {
            directory,
            oidc,
            service,
        }
    }

    pub(crate) fn settings(&self, more: &str) -> AuthSettings {
        let root = self.directory.path().display();
        let text = format!(
            r#"
            htpasswd = "{root}/htpasswd"
            {more}
            [groups]
            developers = ["anna"]
            [[rule]]
            repositories = "public/**"
            who = ["anyone"]
            actions = ["pull"]
            [[rule]]
            repositories = "public/**"
            who = ["group:developers"]
            actions = ["push"]
            [[rule]]
            repositories = "ci/**"
            who = ["group:builders"]
            actions = ["push", "delete"]
            [[oidc]]
            name = "cluster"
            issuer = "https://issuer.example"
            audiences = ["registry.example"]
            keys = {{ file = "{root}/oidc.json" }}
            [[oidc.grant]]
            claims = {{ sub = "system:serviceaccount:ci:*", "/kubernetes.io/namespace" = ["ci", "cd"] }}
            groups = ["builders"]
            "#
        );
        toml::from_str(&text).unwrap()
    }

    pub(crate) fn guard(&self) -> Guard {
        Guard::new(self.settings(""), self.directory.path(), true).unwrap()
    }

    fn guard_with_token_service(&self) -> Guard {
        let root = self.directory.path().display();
        let mut settings = self.settings("");
        let service = format!(
            "realm = 'https://auth.example/token'\nservice = 'registry.example'\nissuer = 'auth.example'\nkeys = {{ file = '{root}/service.json' }}"
        );
        settings.token_service = Some(toml::from_str(&service).unwrap());
        Guard::new(settings, self.directory.path(), true).unwrap()
    }

    /// The token of a service account that ends in so many seconds, and a guard by whose clock it does so at once.
    pub(crate) fn brief(&self, seconds: u64) -> (String, Guard) {
        let mut settings = self.settings("");
        settings.oidc[0].leeway = Period::seconds(0);
        let mut claims = claims_with("sub", json!("system:serviceaccount:ci:builder"));
        claims["kubernetes.io"] = json!({"namespace": "ci"});
        claims["exp"] = json!(seconds_since_1970() + seconds);
        let guard = Guard::new(settings, self.directory.path(), false).unwrap();
        (self.oidc.sound("one", &claims), guard)
    }

    pub(crate) fn service_account(&self) -> String {
        let mut claims = claims_with("sub", json!("system:serviceaccount:ci:builder"));
        claims["kubernetes.io"] = json!({"namespace": "ci"});
        self.oidc.sound("one", &claims)
    }
}

pub(super) fn request(authorization: Option<&str>) -> Parts {
    let mut request = Request::get("/v2/").header("host", "registry.example");
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    request.body(()).unwrap().into_parts().0
}

pub(crate) fn basic(name: &str, password: &str) -> String {
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"))
    )
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(super) fn need(repository: &str, action: Action) -> Need {
    Need {
        repository: repository.to_owned(),
        action,
    }
}

/// The answer in short: the name, or the status with what the challenge says is wrong.
pub(super) async fn answer(guard: &Guard, authorization: Option<&str>, needs: &[Need]) -> String {
    match guard.check(&request(authorization), needs).await {
        Ok(caller) => format!("200 {}", caller.name.as_deref().unwrap_or("-")),
        Err(Refusal::Unauthorized { challenge, .. }) => match challenge.split_once("error=") {
            Some((_, error)) => format!("401 {error}"),
            None => "401".to_owned(),
        },
        Err(Refusal::Denied { .. }) => "403".to_owned(),
        Err(Refusal::Unavailable { .. }) => "503".to_owned(),
    }
}

#[tokio::test]
async fn rights_follow_the_rules_and_nothing_tells_what_exists() {
    let world = World::new();
    let guard = world.guard();
    let anna = basic("anna", "secret");
    let bob = basic("bob", "secret");
    let pull = |name: &str| [need(name, Action::Pull)];
    let push = |name: &str| [need(name, Action::Push)];
    for (who, needs, expected) in [
        (None, &pull("public/app"), "200 -"),
        (None, &push("public/app"), "401"),
        (None, &pull("ci/app"), "401"),
        (None, &pull("no/such/thing"), "401"),
        (Some(&anna), &push("public/app"), "200 anna"),
        (Some(&anna), &pull("ci/app"), "403"),
        (Some(&anna), &pull("no/such/thing"), "403"),
        (Some(&bob), &pull("public/app"), "200 bob"),
        (Some(&bob), &push("public/app"), "403"),
    ] {
        assert_eq!(
            answer(&guard, who.map(String::as_str), needs).await,
            expected,
            "{who:?} {needs:?}"
        );
    }
    let both = [need("public/app", Action::Push), need("ci/app", Action::Pull)];
    assert_eq!(answer(&guard, Some(&anna), &both).await, "403");
    assert_eq!(
        answer(&guard, Some(&anna), &[need("", Action::Catalog)]).await,
        "200 anna"
    );
    assert_eq!(answer(&guard, None, &[need("", Action::Catalog)]).await, "401");
    assert_eq!(
        answer(&guard, Some(&anna), &[need("", Action::Administer)]).await,
        "403"
    );
}

#[tokio::test]
async fn wrong_credentials_are_refused_also_where_none_are_needed() {
    let world = World::new();
    let guard = world.guard();
    let pull = [need("public/app", Action::Pull)];
    for wrong in [
        basic("anna", "wrong"),
        basic("nobody", "secret"),
        basic("", ""),
        "Basic x".to_owned(),
        "Digest x".to_owned(),
    ] {
        assert_eq!(answer(&guard, Some(&wrong), &pull).await, "401", "{wrong}");
        assert_eq!(answer(&guard, Some(&wrong), &[]).await, "401", "{wrong}");
    }
    let stranger = Issuer::p256().sound("one", &claims());
    assert_eq!(
        answer(&guard, Some(&bearer(&stranger)), &pull).await,
        "401 \"invalid_token\""
    );
    assert_eq!(
        answer(&guard, Some(&bearer("a.b.c")), &pull).await,
        "401 \"invalid_token\""
    );
    // Two headers: which of them an intermediary looked at, nobody knows.
    let mut parts = request(Some(&basic("anna", "secret")));
    parts
        .headers
        .append("authorization", basic("bob", "secret").parse().unwrap());
    assert!(matches!(
        guard.check(&parts, &pull).await,
        Err(Refusal::Unauthorized { .. })
    ));
}

#[tokio::test]
async fn clients_learn_how_to_log_in() {
    let world = World::new();
    let challenge = async |guard: &Guard, parts: &Parts, needs: &[Need]| match guard.check(parts, needs).await
    {
        Err(Refusal::Unauthorized { challenge, .. }) => challenge,
        other => panic!("{other:?}"),
    };
    let push = [need("public/app", Action::Push)];
    assert_eq!(
        challenge(&world.guard(), &request(None), &push).await,
        r#"Bearer realm="https://registry.example/token",service="registry.example",scope="repository:public/app:pull,push""#
    );
    assert_eq!(
        challenge(&world.guard(), &request(None), &[]).await,
        r#"Bearer realm="https://registry.example/token",service="registry.example""#
    );
    let plain = Guard::new(world.settings(""), world.directory.path(), false).unwrap();
    assert!(
        challenge(&plain, &request(None), &[])
            .await
            .contains("\"http://registry.example/token\"")
    );
    let mut behind_proxy = request(None);
    behind_proxy
        .headers
        .insert("x-forwarded-proto", "https".parse().unwrap());
    assert!(
        challenge(&plain, &behind_proxy, &[])
            .await
            .contains("\"https://registry.example/token\"")
    );
    let mut odd = request(None);
    odd.headers.insert("host", "a\",x=\"b".parse().unwrap());
    assert!(
        challenge(&plain, &odd, &push)
            .await
            .starts_with("Basic realm=\"xebec-registry\"")
    );

    let named = Guard::new(
        world.settings("public_url = 'https://r.example/'\nservice = 'r'"),
        world.directory.path(),
        false,
    );
    assert!(
        challenge(&named.unwrap(), &odd, &[])
            .await
            .starts_with(r#"Bearer realm="https://r.example/token",service="r""#)
    );
    let by_password = Guard::new(
        world.settings("challenge = 'basic'"),
        world.directory.path(),
        true,
    )
    .unwrap();
    assert!(
        challenge(&by_password, &request(None), &push)
            .await
            .starts_with("Basic ")
    );
    // Docker would send no request at all without a password, if the first one were refused.
    assert_eq!(answer(&by_password, None, &[]).await, "200 -");
    assert_eq!(
        challenge(&world.guard_with_token_service(), &request(None), &push).await,
        r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:public/app:pull,push""#
    );
    assert_eq!(answer(&Guard::open(), None, &[]).await, "200 -");
    assert_eq!(
        answer(&Guard::open(), Some(&basic("x", "y")), &push).await,
        "200 -"
    );
}

#[tokio::test]
async fn tokens_of_a_token_service_grant_what_they_say() {
    let world = World::new();
    let guard = world.guard_with_token_service();
    let token = |access: serde_json::Value| {
        let mut claims = claims_with("iss", json!("auth.example"));
        claims["access"] = access;
        bearer(&world.service.sound("one", &claims))
    };
    let pushing = token(json!([{"type": "repository", "name": "any/thing", "actions": ["pull", "push"]}]));
    assert_eq!(
        answer(&guard, Some(&pushing), &[need("any/thing", Action::Push)]).await,
        "200 token:anna"
    );
    assert_eq!(
        answer(&guard, Some(&pushing), &[need("any/thing", Action::Delete)]).await,
        "401 \"insufficient_scope\""
    );
    assert_eq!(
        answer(&guard, Some(&pushing), &[need("other", Action::Pull)]).await,
        "401 \"insufficient_scope\""
    );
    assert_eq!(
        answer(&guard, Some(&pushing), &[need("", Action::Administer)]).await,
        "403"
    );
    assert_eq!(answer(&guard, Some(&pushing), &[]).await, "200 token:anna");
    for nothing in [
        token(json!([])),
        token(json!("all")),
        token(json!([{"type": "repository"}])),
    ] {
        assert_eq!(
            answer(&guard, Some(&nothing), &[need("any/thing", Action::Pull)]).await,
            "401 \"insufficient_scope\""
        );
    }
    let catalog = token(json!([{"type": "registry", "name": "catalog", "actions": ["*"]}]));
    assert_eq!(
        answer(&guard, Some(&catalog), &[need("", Action::Catalog)]).await,
        "200 token:anna"
    );
    let caller = guard
        .check(&request(Some(&catalog)), &[need("", Action::Catalog)])
        .await;
    assert!(guard.shows(&caller.unwrap(), "any/thing"));
    // To take over a blob from another repository needs a right there.
    let parts = request(Some(&pushing));
    let caller = guard
        .check(&parts, &[need("any/thing", Action::Push)])
        .await
        .unwrap();
    assert!(!guard.may(&caller, &need("secret/thing", Action::Pull)));
    assert!(guard.may(&caller, &need("any/thing", Action::Pull)));
}

#[tokio::test]
async fn service_accounts_have_the_rights_of_the_groups_that_their_claims_give() {
    let world = World::new();
    let guard = world.guard();
    let push = [need("ci/app", Action::Push)];
    let account = "200 cluster:system:serviceaccount:ci:builder";
    assert_eq!(
        answer(&guard, Some(&bearer(&world.service_account())), &push).await,
        account
    );
    assert_eq!(
        answer(&guard, Some(&basic("oidc", &world.service_account())), &push).await,
        account
    );
    assert_eq!(
        answer(
            &guard,
            Some(&bearer(&world.service_account())),
            &[need("public/app", Action::Push)]
        )
        .await,
        "403"
    );
    let with = |name: &str, value: serde_json::Value| {
        let mut claims = claims_with("sub", json!("system:serviceaccount:ci:builder"));
        claims["kubernetes.io"] = json!({"namespace": "ci"});
        claims[name] = value;
        bearer(&world.oidc.sound("one", &claims))
    };
    for (name, value) in [
        ("sub", json!("system:serviceaccount:default:builder")),
        ("sub", json!("")),
        ("sub", json!(["system:serviceaccount:ci:builder"])),
        ("sub", json!("system:serviceaccount:ci:a\nb")),
        ("kubernetes.io", json!({"namespace": "default"})),
        ("kubernetes.io", json!({})),
        ("kubernetes.io", json!("ci")),
        ("aud", json!("https://kubernetes.default.svc")),
        ("iss", json!("https://other.example")),
    ] {
        let refused = answer(&guard, Some(&with(name, value.clone())), &push).await;
        assert_eq!(refused, "401 \"invalid_token\"", "{name} {value}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_verified_now_is_no_wrong_token() {
    let world = World::new();
    let mut settings = world.settings("");
    settings.oidc[0].keys.file = Some(world.directory.path().join("not-there"));
    let guard = Guard::new(settings, world.directory.path(), true).unwrap();
    assert_eq!(
        answer(
            &guard,
            Some(&bearer(&world.service_account())),
            &[need("ci/app", Action::Push)]
        )
        .await,
        "503"
    );
    // Nobody else is concerned.
    assert_eq!(
        answer(
            &guard,
            Some(&basic("anna", "secret")),
            &[need("public/app", Action::Push)]
        )
        .await,
        "200 anna"
    );
}

#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Observer for Seen {
    fn refused(&self, _parts: &Parts, needs: &[Need], refusal: &Refusal) {
        let kind = if matches!(refusal, Refusal::Denied { .. }) {
            "denied"
        } else {
            "other"
        };
        self.0.lock().push(format!("{kind} {}", needs[0].repository));
    }
}

#[tokio::test]
async fn refusals_are_told_and_nothing_else() {
    let world = World::new();
    let seen = Arc::new(Seen::default());
    let guard = world.guard().observed_by(Arc::clone(&seen) as Arc<dyn Observer>);
    let anna = basic("anna", "secret");
    answer(&guard, Some(&anna), &[need("public/app", Action::Push)]).await;
    answer(&guard, Some(&anna), &[need("ci/app", Action::Push)]).await;
    answer(&guard, None, &[need("ci/app", Action::Push)]).await;
    assert_eq!(*seen.0.lock(), ["denied ci/app", "other ci/app"]);
}
