//! The built-in token endpoint, as clients use it.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use hyper::Request;
use hyper::http::request::Parts;
use proptest::prelude::*;
use serde_json::Value;
use xebec_access::endpoint::{TokenAnswer, TokenRequest};
use xebec_access::{Action, Guard};

use super::guard::{World, answer, basic, bearer, need};
use super::logins::{bcrypt, htpasswd};
use super::signing::{claims_with, encode};

fn get(query: &str, authorization: Option<&str>) -> Parts {
    let mut request = Request::get(format!("/token?{query}"));
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    request.body(()).unwrap().into_parts().0
}

async fn ask(guard: &Guard, query: &str, authorization: Option<&str>) -> TokenAnswer {
    guard.token(&get(query, authorization), b"").await
}

async fn post(guard: &Guard, form: &str) -> TokenAnswer {
    let parts = Request::post("/token").body(()).unwrap().into_parts().0;
    guard.token(&parts, form.as_bytes()).await
}

fn token(answer: &TokenAnswer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_grants_what_was_asked_and_the_rules_allow() {
    let world = World::new();
    let guard = world.guard();
    let asked = "service=registry.example&scope=repository:public/app:pull,push,delete&scope=repository:ci/app:pull%20registry:catalog:*";
    let answered = ask(&guard, asked, Some(&basic("anna", "secret"))).await;
    assert_eq!(answered.body["token"], answered.body["access_token"]);
    assert_eq!(answered.body["expires_in"], 300);
    let token = bearer(&token(&answered));
    assert_eq!(
        answer(&guard, Some(&token), &[need("public/app", Action::Push)]).await,
        "200 anna"
    );
    assert_eq!(
        answer(&guard, Some(&token), &[need("", Action::Catalog)]).await,
        "200 anna"
    );
    assert_eq!(answer(&guard, Some(&token), &[]).await, "200 anna");
    // Beyond the rules, another token would help nobody; within them, it would.
    assert_eq!(
        answer(&guard, Some(&token), &[need("public/app", Action::Delete)]).await,
        "403"
    );
    assert_eq!(
        answer(&guard, Some(&token), &[need("ci/app", Action::Pull)]).await,
        "403"
    );
    assert_eq!(
        answer(&guard, Some(&token), &[need("public/other", Action::Pull)]).await,
        "401 \"insufficient_scope\""
    );
}

#[tokio::test]
async fn everybody_gets_an_anonymous_token() {
    let world = World::new();
    let guard = world.guard();
    let answered = ask(
        &guard,
        "scope=repository:public/app:pull,push&scope=repository:ci/app:pull",
        None,
    )
    .await;
    let token = bearer(&token(&answered));
    assert_eq!(
        answer(&guard, Some(&token), &[need("public/app", Action::Pull)]).await,
        "200 -"
    );
    assert_eq!(
        answer(&guard, Some(&token), &[need("public/app", Action::Push)]).await,
        "401 \"insufficient_scope\""
    );
    assert_eq!(
        answer(&guard, Some(&token), &[need("ci/app", Action::Pull)]).await,
        "401 \"insufficient_scope\""
    );
}

#[tokio::test]
async fn wrong_names_and_passwords_get_none() {
    let world = World::new();
    let guard = world.guard();
    for wrong in [
        basic("anna", "wrong"),
        basic("nobody", "secret"),
        basic("oidc", "x.y.z"),
        bearer("x.y.z"),
        "Basic !".to_owned(),
    ] {
        let answered = ask(&guard, "scope=repository:public/app:pull", Some(&wrong)).await;
        assert_eq!(answered.status, 401, "{wrong}");
        assert!(
            answered
                .challenge
                .is_some_and(|challenge| challenge.starts_with("Basic "))
        );
        assert_eq!(answered.body["errors"][0]["code"], "UNAUTHORIZED");
    }
    for form in [
        "",
        "grant_type=password&username=anna&password=wrong",
        "grant_type=x",
        "grant_type=refresh_token&refresh_token=x",
    ] {
        assert_eq!(post(&guard, form).await.status, 401, "{form}");
    }
    assert_eq!(ask(&guard, "scope=nonsense", None).await.status, 400);
    assert_eq!(post(&guard, &"x".repeat(100_000)).await.status, 413);
    assert_eq!(ask(&Guard::open(), "", None).await.status, 404);
}

#[tokio::test]
async fn the_form_of_oauth_works_too() {
    let world = World::new();
    let guard = world.guard();
    let form = "grant_type=password&username=anna&password=secret&service=r&client_id=docker&scope=repository%3Apublic%2Fapp%3Apull%2Cpush";
    let answered = post(&guard, form).await;
    assert_eq!(answered.body["scope"], "repository:public/app:pull,push");
    assert_eq!(answered.body.get("refresh_token"), None);
    let token = bearer(&token(&answered));
    assert_eq!(
        answer(&guard, Some(&token), &[need("public/app", Action::Push)]).await,
        "200 anna"
    );
}

#[tokio::test]
async fn a_refresh_token_counts_until_the_password_changes() {
    let world = World::new();
    let guard = world.guard();
    let answered = ask(&guard, "offline_token=true", Some(&basic("anna", "secret"))).await;
    let refresh = answered.body["refresh_token"].as_str().unwrap().to_owned();
    let form = format!("grant_type=refresh_token&refresh_token={refresh}&scope=repository:public/app:pull");
    let access = token(&post(&guard, &form).await);
    assert_eq!(
        answer(
            &guard,
            Some(&bearer(&access)),
            &[need("public/app", Action::Pull)]
        )
        .await,
        "200 anna"
    );

    // Neither kind is taken for the other.
    assert_eq!(
        answer(
            &guard,
            Some(&bearer(&refresh)),
            &[need("public/app", Action::Pull)]
        )
        .await,
        "401 \"invalid_token\""
    );
    let swapped = format!("grant_type=refresh_token&refresh_token={access}");
    assert_eq!(post(&guard, &swapped).await.status, 401);

    let other = xebec_access::password::Hash::of("other").unwrap();
    htpasswd(&world.directory, &format!("anna:{other}\n"));
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(post(&guard, &form).await.status, 401);

    // A user who has gone has no rights, however long the token would count.
    htpasswd(&world.directory, &format!("bob:{}\n", bcrypt()));
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(
        answer(
            &guard,
            Some(&bearer(&access)),
            &[need("public/app", Action::Pull)]
        )
        .await,
        "401 \"invalid_token\""
    );
    assert_eq!(
        ask(&guard, "offline_token=true", None)
            .await
            .body
            .get("refresh_token"),
        None,
        "nobody's login is kept"
    );
}

#[tokio::test]
async fn a_service_account_gets_a_token_by_its_own() {
    let world = World::new();
    let guard = world.guard();
    let scope = "scope=repository:ci/app:pull,push,delete";
    let account = world.service_account();
    for authorization in [basic("oidc", &account), bearer(&account)] {
        let answered = ask(
            &guard,
            &format!("{scope}&offline_token=true"),
            Some(&authorization),
        )
        .await;
        assert_eq!(answered.body.get("refresh_token"), None);
        let token = bearer(&token(&answered));
        assert_eq!(
            answer(&guard, Some(&token), &[need("ci/app", Action::Delete)]).await,
            "200 cluster:system:serviceaccount:ci:builder"
        );
        assert_eq!(
            answer(&guard, Some(&token), &[need("public/app", Action::Push)]).await,
            "403"
        );
    }
}

#[tokio::test]
async fn the_key_is_made_once_and_kept_from_others() {
    let world = World::new();
    let token_of_first = token(
        &ask(
            &world.guard(),
            "scope=repository:public/app:pull",
            Some(&basic("anna", "secret")),
        )
        .await,
    );
    let path = world.directory.path().join("token-key.pem");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // Another node, or the next start.
    let second = world.guard();
    assert_eq!(
        answer(
            &second,
            Some(&bearer(&token_of_first)),
            &[need("public/app", Action::Pull)]
        )
        .await,
        "200 anna"
    );

    // A token of another key is refused, even if it names the registry as its issuer.
    let forged = world
        .oidc
        .sound("one", &claims_with("iss", "xebec-registry".into()));
    assert_eq!(
        answer(
            &second,
            Some(&bearer(&forged)),
            &[need("public/app", Action::Pull)]
        )
        .await,
        "401 \"invalid_token\""
    );
    let parts: Vec<&str> = token_of_first.split('.').collect();
    let more = encode(r#"{"iss":"xebec-registry","aud":"xebec-registry","sub":"anna","exp":99999999999}"#);
    let forged = format!("{}.{more}.{}", parts[0], parts[2]);
    assert_eq!(
        answer(
            &second,
            Some(&bearer(&forged)),
            &[need("public/app", Action::Pull)]
        )
        .await,
        "401 \"invalid_token\""
    );

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Guard::new(world.settings(""), world.directory.path(), true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("chmod 600"), "{error}");
    std::fs::write(&path, "no key").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let error = Guard::new(world.settings(""), world.directory.path(), true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("holds no Ed25519 key"), "{error}");
}

#[tokio::test]
async fn a_key_made_by_openssl_is_taken() {
    let world = World::new();
    let path = world.directory.path().join("token-key.pem");
    let made = std::process::Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(&path)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("SKIPPED: openssl is not installed");
        return;
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let guard = world.guard();
    let token = token(
        &ask(
            &guard,
            "scope=repository:public/app:pull",
            Some(&basic("anna", "secret")),
        )
        .await,
    );
    assert_eq!(
        answer(&guard, Some(&bearer(&token)), &[need("public/app", Action::Pull)]).await,
        "200 anna"
    );
}

proptest! {
    #[test]
    fn any_form_is_read(bytes: Vec<u8>, text in "(scope|grant_type|password|offline_token)=[a-z%0-9+&=:]{0,40}") {
        let _ = TokenRequest::parse(&bytes);
        let _ = TokenRequest::parse(text.as_bytes());
    }
}

/// The members of an answer that clients look for when a request fails.
#[tokio::test]
async fn failures_are_told_in_both_forms() {
    let world = World::new();
    let answered = post(&world.guard(), "grant_type=password&username=anna&password=wrong").await;
    assert_eq!(answered.body["error"], "invalid_grant");
    assert!(matches!(answered.body["errors"][0]["message"], Value::String(_)));
}
