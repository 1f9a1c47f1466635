//! Passwords: what a file may hold, and what a verification costs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use proptest::prelude::*;
use xebec_access::htpasswd::{Htpasswd, HtpasswdError, check_name, with_user, without_user};
use xebec_access::login::{Logins, LoginsError, Verdict};
use xebec_access::password::{Hash, HashError};
use xebec_access::{Guard, Peer};

/// bcrypt of "secret" with cost 4, by libxcrypt: `perl -e 'print crypt("secret", "\\$2y\\$04\\$abcdefghijklmnopqrstuu")'`.
pub(super) const BCRYPT: &str = include_str!("../keys/bcrypt-of-secret");

pub(super) fn htpasswd(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("htpasswd");
    std::fs::write(&path, text).unwrap();
    path
}

pub(super) fn bcrypt() -> &'static str {
    BCRYPT.trim()
}

#[test]
fn both_kinds_of_hashes_are_verified() {
    let bcrypt = Hash::parse(bcrypt()).unwrap();
    assert!(bcrypt.verify("secret") && !bcrypt.verify("Secret") && !bcrypt.verify(""));
    // The example of the reference implementation: `echo -n password | argon2 somesalt -t 2 -m 16 -p 4 -l 24` (version 1.3, argon2i).
    let reference =
        Hash::parse("$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG").unwrap();
    assert!(reference.verify("password") && !reference.verify("passwore"));
    let own = Hash::of("correct horse").unwrap();
    assert!(own.to_string().starts_with("$argon2id$"), "{own}");
    assert!(own.verify("correct horse") && !own.verify("correct hors"));
    assert_ne!(
        own,
        Hash::of("correct horse").unwrap(),
        "each has a salt of its own"
    );
    assert_eq!(Hash::of(""), Err(HashError::Password));
    assert_eq!(Hash::of(&"x".repeat(2000)), Err(HashError::Password));
    assert!(!own.verify(&"x".repeat(2000)));
}

#[test]
fn what_does_not_protect_or_costs_too_much_is_refused_by_line() {
    let expensive = bcrypt().replacen("$04$", "$31$", 1);
    for (hash, expected) in [
        ("$apr1$9Cv/OMGj$ZomWQzuQbL.3TRCS81A1g/", "neither bcrypt"),
        ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "neither bcrypt"),
        ("$1$x$y", "neither bcrypt"),
        ("secret", "neither bcrypt"),
        ("", "neither bcrypt"),
        (expensive.as_str(), "more work"),
        (
            "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b/dWRWJTmaaJObG",
            "more work",
        ),
        ("$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ", "damaged"),
        ("$2y$04$short", "damaged"),
    ] {
        let text = format!("# users\nanna:{}\nbob:{hash}\n", bcrypt());
        let error = Htpasswd::parse(&text).unwrap_err().to_string();
        assert!(
            error.starts_with("line 3") && error.contains(expected),
            "{hash}: {error}"
        );
        assert!(
            hash.is_empty() || !error.contains(hash),
            "a message must not show a hash: {error}"
        );
    }
    assert_eq!(Htpasswd::parse("anna"), Err(HtpasswdError::NotAPair(1)));
    let twice = format!("anna:{0}\nanna:{0}\n", bcrypt());
    assert_eq!(Htpasswd::parse(&twice), Err(HtpasswdError::Twice(2)));
    for name in ["oidc", "<token>", "", "a b", "a,b", "a\"b", "a#b"] {
        assert!(check_name(name).is_err(), "{name}");
    }
}

#[test]
fn a_file_is_edited_line_by_line() {
    let hash = Hash::parse(bcrypt()).unwrap();
    let text = "# ours\nanna:old\n\nbob:old";
    let edited = with_user(text, "anna", &hash);
    assert_eq!(edited, format!("# ours\nanna:{hash}\n\nbob:old\n"));
    assert_eq!(with_user("", "x", &hash), format!("x:{hash}\n"));
    assert_eq!(
        without_user(&edited, "bob").as_deref(),
        Some(format!("# ours\nanna:{hash}\n\n").as_str())
    );
    assert_eq!(without_user(&edited, "carl"), None);
    assert_eq!(without_user("x:y", "x").as_deref(), Some(""));
}

#[tokio::test]
async fn a_right_password_is_verified_once_and_a_wrong_one_is_no_oracle() {
    let directory = tempfile::tempdir().unwrap();
    let path = htpasswd(&directory, &format!("anna:{}\n", bcrypt()));
    let logins = Logins::open(&path).unwrap();
    for _ in 0..100 {
        assert_eq!(logins.verify(None, "anna", "secret").await, Verdict::Right);
    }
    assert_eq!(logins.verified(), 1);
    for name in ["anna", "nobody", "anna "] {
        let before = logins.verified();
        for _ in 0..10 {
            assert_eq!(logins.verify(None, name, "wrong").await, Verdict::Wrong);
        }
        assert_eq!(
            logins.verified(),
            before + 1,
            "{name}: known or not, the same work"
        );
    }
    // The stand-in's own password opens nothing.
    assert_eq!(logins.verify(None, "nobody", "secret").await, Verdict::Wrong);
    assert!(logins.knows("anna") && !logins.knows("nobody"));
}

#[tokio::test]
async fn an_unknown_user_takes_as_long_as_a_known_one() {
    let directory = tempfile::tempdir().unwrap();
    // A hash that takes long enough to be seen beside what else runs.
    let slow = Hash::of("secret").unwrap();
    let logins = Logins::open(&htpasswd(&directory, &format!("anna:{slow}\n"))).unwrap();
    let mut least = [Duration::MAX; 2];
    for round in 0..8 {
        for (place, name) in ["anna", "nobody"].into_iter().enumerate() {
            let begun = Instant::now();
            assert_eq!(
                logins.verify(None, name, &format!("wrong {round}")).await,
                Verdict::Wrong
            );
            least[place] = least[place].min(begun.elapsed());
        }
    }
    let [known, unknown] = least;
    assert!(
        unknown * 2 > known && known * 2 > unknown,
        "{known:?} for a known user, {unknown:?} for an unknown one"
    );
}

#[tokio::test]
async fn the_file_is_read_again_when_it_has_changed_and_a_damaged_one_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = htpasswd(&directory, &format!("anna:{}\n", bcrypt()));
    let logins = Logins::open(&path).unwrap();
    assert_eq!(logins.verify(None, "anna", "secret").await, Verdict::Right);
    let mark = logins.password_mark("anna").unwrap();

    std::fs::write(&path, "anna:damaged\n").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(
        logins.verify(None, "anna", "secret").await,
        Verdict::Right,
        "the users before it stay"
    );

    let other = Hash::of("other").unwrap();
    std::fs::write(&path, format!("anna:{other}\nbob:{}\n", bcrypt())).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(
        logins.verify(None, "anna", "secret").await,
        Verdict::Wrong,
        "what is remembered ends with the password"
    );
    assert_eq!(logins.verify(None, "anna", "other").await, Verdict::Right);
    assert_eq!(logins.verify(None, "bob", "secret").await, Verdict::Right);
    assert_ne!(logins.password_mark("anna").unwrap(), mark);
}

#[tokio::test]
async fn a_flood_of_passwords_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Hash::of("secret").unwrap();
    let logins = Logins::open(&htpasswd(&directory, &format!("anna:{slow}\n"))).unwrap();
    let mut verdicts = futures_util::future::join_all((0..600).map(|nth| {
        let logins = &logins;
        async move {
            let guess = format!("guess {nth}");
            tokio::time::timeout(Duration::from_millis(200), logins.verify(None, "anna", &guess)).await
        }
    }))
    .await;
    let busy = verdicts
        .iter()
        .filter(|verdict| matches!(verdict, Ok(Verdict::Busy)))
        .count();
    assert!(busy >= 300, "only {busy} of 600 were told to come again");
    verdicts.retain(|verdict| matches!(verdict, Ok(Verdict::Right)));
    assert!(verdicts.is_empty());
    // A request that gave up waiting makes room.
    assert_eq!(logins.verify(None, "anna", "secret").await, Verdict::Right);
}

#[tokio::test]
async fn one_client_that_guesses_keeps_no_other_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = htpasswd(&directory, &format!("anna:{}\n", Hash::of("secret").unwrap()));
    let settings = toml::from_str(&format!("htpasswd = {path:?}")).unwrap();
    let guard = Guard::new(settings, directory.path(), true).unwrap();
    let log_in = |address: &str, password: String| {
        let peer = Peer(std::net::SocketAddr::new(address.parse().unwrap(), 1));
        let shown = base64::engine::general_purpose::STANDARD.encode(format!("anna:{password}"));
        let request = hyper::Request::get("/token").header("authorization", format!("Basic {shown}"));
        let parts = request.extension(peer).body(()).unwrap().into_parts().0;
        let guard = &guard;
        async move { guard.token(&parts, b"").await.status }
    };
    // All of one network that a host may choose its addresses from.
    let flood: Vec<String> = (0..600).map(|nth| format!("fd00::{nth:x}")).collect();
    let guesses = flood
        .iter()
        .enumerate()
        .map(|(nth, address)| log_in(address, format!("guess {nth}")));
    let right = log_in("fd00:0:0:1::1", "secret".to_owned());
    // The flood comes first.
    let (guesses, right) = futures_util::future::join(futures_util::future::join_all(guesses), right).await;
    assert_eq!(right, 200);
    let refused = guesses.iter().filter(|status| **status == 503).count();
    assert!(refused > 500, "{guesses:?}");
    assert!(
        guesses.iter().all(|status| matches!(status, 401 | 503)),
        "{guesses:?}"
    );
}

#[tokio::test]
async fn a_client_that_sends_its_password_with_many_requests_at_once_waits_for_one_verification() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Hash::of("secret").unwrap();
    let logins = Logins::open(&htpasswd(&directory, &format!("anna:{slow}\n"))).unwrap();
    let all = futures_util::future::join_all((0..100).map(|_| logins.verify(None, "anna", "secret"))).await;
    assert!(all.iter().all(|verdict| *verdict == Verdict::Right), "{all:?}");
    assert_eq!(logins.verified(), 1);
    // Those that gave up waiting are forgotten, and leave the others their turn.
    for _ in 0..20 {
        let begun = logins.verify(None, "anna", "another");
        drop(tokio::time::timeout(Duration::from_millis(1), begun).await);
    }
    assert_eq!(logins.verify(None, "anna", "another").await, Verdict::Wrong);
}

#[test]
fn a_file_that_is_not_there_or_not_sound_is_an_error_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let missing = Logins::open(&directory.path().join("none")).unwrap_err();
    assert!(matches!(missing, LoginsError::Unreadable { .. }), "{missing}");
    let damaged = Logins::open(&htpasswd(&directory, "anna\n")).unwrap_err();
    assert!(matches!(damaged, LoginsError::Unsound { .. }), "{damaged}");
    assert!(damaged.to_string().contains("line 1"), "{damaged}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,100}", hash in "\\$(2y|argon2id?)\\$\\PC{0,80}") {
        let _ = Htpasswd::parse(&text);
        if let Ok(hash) = Hash::parse(&hash) {
            prop_assert_eq!(Htpasswd::parse(&format!("a:{hash}")).unwrap().users().len(), 1);
        }
        let hash = Hash::parse(bcrypt()).unwrap();
        let edited = with_user(&text.replace("x:", ""), "x", &hash);
        let expected = format!("x:{hash}");
        prop_assert!(edited.lines().any(|line| line == expected));
        let removed = without_user(&edited, "x");
        prop_assert!(removed.is_some_and(|text| !text.lines().any(|line| line.starts_with("x:"))));
    }
}
