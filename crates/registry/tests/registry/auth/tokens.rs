//! Sound tokens, and forged ones: each way to forge one has a case.

use proptest::prelude::*;
use ring::hmac;
use serde_json::{Value, json};
use xebec_access::jwk::{KeySet, KeySetError};
use xebec_access::token::{Claims, Expected, TokenError, verify};
use xebec_kernel::clock::seconds_since_1970;

use super::signing::{Issuer, claims, claims_with, encode, keys, set};

fn expected() -> Expected {
    Expected {
        issuer: "https://issuer.example".to_owned(),
        audiences: vec!["registry.example".to_owned()],
        leeway: 60,
    }
}

fn check(token: &str, keys: &KeySet) -> Result<Claims, TokenError> {
    verify(token, keys, &expected())
}

#[test]
fn a_sound_token_of_each_algorithm_is_taken_by_each_name_of_its_key() {
    for issuer in Issuer::all() {
        let keys = keys(&[(&issuer, "one")]);
        let without_name = issuer.token(&json!({"alg": issuer.algorithm()}), &claims());
        for token in [issuer.sound("one", &claims()), without_name] {
            assert_eq!(
                check(&token, &keys).unwrap()["sub"],
                "anna",
                "{}",
                issuer.algorithm()
            );
        }
        assert_eq!(
            check(&issuer.sound("two", &claims()), &keys),
            Err(TokenError::UnknownKey)
        );
    }
}

#[test]
fn a_key_has_the_names_that_rfc_7638_and_libtrust_give_it() {
    // The key and its thumbprint are those of RFC 7638, section 3.1.
    let set = json!({"keys": [{
        "kty": "RSA",
        "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs\
              tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbI\
              SD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        "e": "AQAB"}]});
    let keys = KeySet::parse(set.to_string().as_bytes()).unwrap();
    assert!(keys.knows("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"));

    // The name of the test's own key, by `openssl pkey -pubout -outform DER | sha256sum`, its first 30 bytes in base 32.
    let own = KeySet::parse(include_bytes!("../keys/rsa-certificate.pem")).unwrap();
    assert!(own.knows(include_str!("../keys/rsa-libtrust-name").trim()));
    assert!(own.keys()[0].is_called(include_str!("../keys/rsa-libtrust-name").trim()));
}

#[test]
fn the_key_of_a_certificate_is_the_key_of_its_issuer() {
    let issuer = Issuer::rsa();
    let keys = KeySet::parse(include_bytes!("../keys/rsa-certificate.pem")).unwrap();
    let token = issuer.token(&json!({"alg": "RS256"}), &claims());
    assert!(check(&token, &keys).is_ok());
}

#[test]
fn a_token_without_a_signature_is_refused_whatever_it_calls_its_algorithm() {
    let issuer = Issuer::ed25519();
    let keys = keys(&[(&issuer, "one")]);
    for name in ["none", "None", "NONE", "nOnE", ""] {
        let header = encode(json!({"alg": name, "kid": "one"}).to_string());
        let unsigned = format!("{header}.{}.", encode(claims().to_string()));
        assert!(
            matches!(check(&unsigned, &keys), Err(TokenError::Malformed(_))),
            "{name}"
        );
        let with_something = format!("{unsigned}AAAA");
        assert_eq!(
            check(&with_something, &keys),
            Err(TokenError::Algorithm(name.to_owned()))
        );
    }
    let two_parts = format!(
        "{}.{}",
        encode(r#"{"alg":"EdDSA"}"#),
        encode(claims().to_string())
    );
    assert!(matches!(check(&two_parts, &keys), Err(TokenError::Malformed(_))));
}

#[test]
fn a_public_key_is_no_secret_of_an_hmac() {
    let issuer = Issuer::rsa();
    let keys = keys(&[(&issuer, "one")]);
    let jwk = issuer.jwk("one");
    // Each form in which somebody could guess that the key is held.
    let forms: Vec<Vec<u8>> = vec![
        include_bytes!("../keys/rsa-certificate.pem").to_vec(),
        jwk["n"].as_str().unwrap().into(),
        jwk.to_string().into(),
        Vec::new(),
    ];
    for (algorithm, hash) in [
        ("HS256", hmac::HMAC_SHA256),
        ("HS384", hmac::HMAC_SHA384),
        ("HS512", hmac::HMAC_SHA512),
    ] {
        for secret in &forms {
            let message = format!(
                "{}.{}",
                encode(json!({"alg": algorithm, "kid": "one"}).to_string()),
                encode(claims().to_string())
            );
            let tag = hmac::sign(&hmac::Key::new(hash, secret), message.as_bytes());
            let token = format!("{message}.{}", encode(tag.as_ref()));
            assert_eq!(
                check(&token, &keys),
                Err(TokenError::Algorithm(algorithm.to_owned()))
            );
        }
    }
}

#[test]
fn the_key_decides_on_the_algorithm_and_not_the_token() {
    let (rsa, p256, ed25519) = (Issuer::rsa(), Issuer::p256(), Issuer::ed25519());
    let keys = keys(&[(&rsa, "rsa"), (&p256, "p256"), (&ed25519, "ed25519")]);
    for (issuer, kid, other) in [
        (&rsa, "rsa", "ES256"),
        (&p256, "p256", "EdDSA"),
        (&ed25519, "ed25519", "RS256"),
    ] {
        let token = issuer.token(&json!({"alg": other, "kid": kid}), &claims());
        let refused = check(&token, &keys);
        assert!(
            matches!(refused, Err(TokenError::KeyOfOtherAlgorithm { .. })),
            "{refused:?}"
        );
        // Without a name, the keys of that algorithm are tried, and none of them signed it.
        let token = issuer.token(&json!({"alg": other}), &claims());
        assert_eq!(check(&token, &keys), Err(TokenError::Signature));
    }
    for algorithm in ["PS256", "RS512", "ES384", "RS384", "A128KW"] {
        let token = rsa.token(&json!({"alg": algorithm, "kid": "rsa"}), &claims());
        assert_eq!(
            check(&token, &keys),
            Err(TokenError::Algorithm(algorithm.to_owned()))
        );
    }
}

#[test]
fn a_key_that_the_token_brings_along_is_not_used() {
    let (issuer, forger) = (Issuer::ed25519(), Issuer::ed25519());
    let keys = keys(&[(&issuer, "one")]);
    let header =
        json!({"alg": "EdDSA", "kid": "one", "jwk": forger.jwk("one"), "jku": "http://forger.example/keys"});
    assert_eq!(
        check(&forger.token(&header, &claims()), &keys),
        Err(TokenError::Signature)
    );
}

#[test]
fn a_forged_signature_and_changed_claims_are_refused() {
    for issuer in Issuer::all() {
        let keys = keys(&[(&issuer, "one")]);
        let token = issuer.sound("one", &claims());
        let parts: Vec<&str> = token.split('.').collect();
        let other = encode(claims_with("sub", json!("root")).to_string());
        assert_eq!(
            check(&format!("{}.{other}.{}", parts[0], parts[2]), &keys),
            Err(TokenError::Signature)
        );
        let forged = encode(vec![1; 64]);
        assert_eq!(
            check(&format!("{}.{}.{forged}", parts[0], parts[1]), &keys),
            Err(TokenError::Signature)
        );
        let zeros = encode(vec![0; 64]);
        assert_eq!(
            check(&format!("{}.{}.{zeros}", parts[0], parts[1]), &keys),
            Err(TokenError::Signature)
        );
    }
}

#[test]
fn time_counts_with_little_leeway() {
    let issuer = Issuer::p256();
    let keys = keys(&[(&issuer, "one")]);
    let now = seconds_since_1970();
    let with =
        |name: &str, value: Value| check(&issuer.sound("one", &claims_with(name, value)), &keys).map(drop);
    assert_eq!(with("exp", json!(now - 30)), Ok(()));
    assert_eq!(with("exp", json!(now - 90)), Err(TokenError::Expired));
    assert_eq!(with("nbf", json!(now + 30)), Ok(()));
    assert_eq!(with("nbf", json!(now + 90)), Err(TokenError::NotYet));
    assert_eq!(with("exp", Value::Null), Err(TokenError::Claim("exp".to_owned())));
    assert_eq!(
        with("exp", json!("soon")),
        Err(TokenError::Claim("exp".to_owned()))
    );
    assert_eq!(with("exp", json!(-5)), Err(TokenError::Claim("exp".to_owned())));
    assert_eq!(
        with("nbf", json!("then")),
        Err(TokenError::Claim("nbf".to_owned()))
    );

    // A configuration cannot make it more than five minutes.
    let wide = Expected {
        leeway: 1_000_000,
        ..expected()
    };
    let old = issuer.sound("one", &claims_with("exp", json!(now - 400)));
    assert_eq!(verify(&old, &keys, &wide), Err(TokenError::Expired));
}

#[test]
fn the_issuer_and_the_audience_are_the_expected_ones() {
    let issuer = Issuer::ed25519();
    let keys = keys(&[(&issuer, "one")]);
    let with =
        |name: &str, value: Value| check(&issuer.sound("one", &claims_with(name, value)), &keys).map(drop);
    assert_eq!(with("aud", json!("other.example")), Err(TokenError::Audience));
    assert_eq!(with("aud", json!([])), Err(TokenError::Audience));
    assert_eq!(with("aud", json!(["other.example", "registry.example"])), Ok(()));
    assert_eq!(with("aud", Value::Null), Err(TokenError::Claim("aud".to_owned())));
    assert_eq!(with("aud", json!(7)), Err(TokenError::Claim("aud".to_owned())));
    assert_eq!(
        with("iss", json!("https://issuer.example/")),
        Err(TokenError::Issuer)
    );
    assert_eq!(with("iss", Value::Null), Err(TokenError::Claim("iss".to_owned())));
    assert_eq!(
        with("iss", json!(["https://issuer.example", "https://other.example"])),
        Err(TokenError::Issuer)
    );
}

#[test]
fn what_must_be_understood_and_is_not_is_refused() {
    let issuer = Issuer::ed25519();
    let keys = keys(&[(&issuer, "one")]);
    let header = json!({"alg": "EdDSA", "kid": "one", "crit": ["b64"], "b64": false});
    assert!(matches!(
        check(&issuer.token(&header, &claims()), &keys),
        Err(TokenError::Malformed(_))
    ));
    let long = issuer.sound("one", &claims_with("more", json!("x".repeat(20_000))));
    assert!(matches!(check(&long, &keys), Err(TokenError::Malformed(_))));
}

#[test]
fn keys_that_are_of_no_use_are_passed_over() {
    let (good, encryption) = (Issuer::p256(), Issuer::p256());
    let mut for_encryption = encryption.jwk("secret");
    for_encryption["use"] = "enc".into();
    let weak = json!({"kty": "RSA", "n": encode([0xff; 128]), "e": "AQAB", "kid": "weak"});
    let hmac = json!({"kty": "oct", "k": encode("secret"), "kid": "hmac"});
    let mut other = good.jwk("other");
    other["alg"] = "ES512".into();
    let odd = [for_encryption, weak, hmac, other, json!({"kty": "LMS"}), json!(5)];
    let mut all = odd.to_vec();
    all.push(good.jwk("good"));
    let keys = KeySet::parse(json!({"keys": all}).to_string().as_bytes()).unwrap();
    assert_eq!(keys.keys().len(), 1);
    assert!(check(&good.sound("good", &claims()), &keys).is_ok());

    let none = KeySet::parse(json!({"keys": odd}).to_string().as_bytes());
    assert!(matches!(none, Err(KeySetError::NoKey(_))), "{none:?}");
    assert!(matches!(KeySet::parse(b"not a set"), Err(KeySetError::NoKey(_))));
    assert!(matches!(
        KeySet::parse(b"{\"keys\": 7}"),
        Err(KeySetError::Malformed(_))
    ));
    assert!(matches!(
        KeySet::parse(&vec![b' '; 300_000]),
        Err(KeySetError::TooLarge)
    ));
}

proptest! {
    #[test]
    fn nothing_that_was_not_signed_is_taken(text in "[A-Za-z0-9_-]{0,40}(\\.[A-Za-z0-9_-]{0,60}){0,4}", bytes: Vec<u8>) {
        let issuer = Issuer::ed25519();
        let keys = keys(&[(&issuer, "one")]);
        prop_assert!(check(&text, &keys).is_err());
        prop_assert!(check(&String::from_utf8_lossy(&bytes), &keys).is_err());
    }

    #[test]
    fn a_token_with_any_one_character_changed_is_refused(at in 0_usize..400, with in "[A-Za-z0-9_.-]") {
        let issuer = Issuer::ed25519();
        let keys = keys(&[(&issuer, "one")]);
        let token = issuer.sound("one", &claims());
        let at = at % token.len();
        let changed = format!("{}{with}{}", &token[..at], &token[at + 1..]);
        prop_assume!(changed != token);
        // The last character of base64 has bits that belong to no byte; those must be zero.
        prop_assert!(check(&changed, &keys).is_err(), "{changed}");
    }

    #[test]
    fn sets_of_keys_are_read_or_refused(bytes: Vec<u8>, text in "\\PC{0,200}") {
        let _ = KeySet::parse(&bytes);
        let _ = KeySet::parse(text.as_bytes());
        let good = Issuer::ed25519();
        let mut damaged = set(&[(&good, "one")]);
        for (byte, other) in damaged.iter_mut().zip(&bytes) {
            *byte ^= other & 1;
        }
        let _ = KeySet::parse(&damaged);
    }
}
