//! Signatures against independent programs: files that cosign wrote, `cosign` if it is there; and against hostile input.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use xebec_format::digest::Digest;
use xebec_trust::{
    KeyError, MAX_PAYLOAD, MAX_SIGNATURE_MANIFEST, MAX_SIGNATURES, MAX_TRUST_FILE, Payload, PayloadError,
    Policy, PrivateKey, PublicKey, RepositoryName, SIGNATURE_ANNOTATION, SIGNATURE_LAYER_MEDIA_TYPE,
    SignatureManifest, SignatureManifestError, Signing, TrustFile, VerifyError, sign, signature_tag, verify,
};

use crate::support::{data, key, repository};

/// Files of others are read up to a size and no further; spaces behind them count.
#[test]
fn files_are_as_large_as_they_may_be() {
    let sized = |text: &[u8], size: usize| {
        let mut bytes = text.to_vec();
        bytes.resize(size, b' ');
        bytes
    };
    let payload = Payload {
        manifest: Digest::of(b"manifest"),
        identity: repository("registry.example/app"),
    };
    let payload = payload.to_json().unwrap();
    let manifest = br#"{"schemaVersion":2,"config":{},"layers":[]}"#;
    assert!(Payload::parse(&sized(&payload, MAX_PAYLOAD)).is_ok());
    let refused = Payload::parse(&sized(&payload, MAX_PAYLOAD + 1));
    assert!(matches!(refused, Err(PayloadError::TooLarge(size)) if size == MAX_PAYLOAD + 1));
    assert!(SignatureManifest::parse(&sized(manifest, MAX_SIGNATURE_MANIFEST)).is_ok());
    let refused = SignatureManifest::parse(&sized(manifest, MAX_SIGNATURE_MANIFEST + 1));
    assert!(matches!(refused, Err(SignatureManifestError::TooLarge(_))));
    let layers = |count: usize| {
        let layer = json!({ "mediaType": "x", "digest": Digest::of(b""), "size": 0 });
        json!({ "schemaVersion": 2, "config": {}, "layers": vec![layer; count] }).to_string()
    };
    assert!(SignatureManifest::parse(layers(MAX_SIGNATURES).as_bytes()).is_ok());
    assert!(SignatureManifest::parse(layers(MAX_SIGNATURES + 1).as_bytes()).is_err());
    assert!(TrustFile::parse(&sized(b"", MAX_TRUST_FILE)).is_ok());
    assert!(TrustFile::parse(&sized(b"", MAX_TRUST_FILE + 1)).is_err());
}

const PASSWORD: &[u8] = "pässword 1".as_bytes();

/// A policy in which each key (name, PEM, further lines of its entry) is trusted for its pattern.
fn policy(keys: &[(&str, Vec<u8>, &str)]) -> Policy {
    let entry = |(name, _, more): &(&str, Vec<u8>, &str)| {
        format!("[[key]]\nname = {name:?}\nfile = {name:?}\n{more}\n")
    };
    let text: String = keys.iter().map(entry).collect();
    let file = TrustFile::parse(text.as_bytes()).unwrap();
    let read = |file: &str| {
        let (name, pem, _) = keys.iter().find(|(name, ..)| *name == file).unwrap();
        Ok((PathBuf::from(name), pem.clone()))
    };
    Policy::build(&file, read).unwrap()
}

fn policy_of(key: &PrivateKey, more: &str) -> Policy {
    policy(&[("ci", key.public().unwrap().to_pem().unwrap().into_bytes(), more)])
}

const ALL: &str = "repositories = [\"**\"]";

fn check(
    policy: &Policy,
    image: &RepositoryName,
    artifact: Digest,
    manifest: &[u8],
    payload: &[u8],
) -> Result<Signing, VerifyError> {
    verify(
        policy,
        image,
        artifact,
        &SignatureManifest::parse(manifest).unwrap(),
        &[payload],
    )
}

#[test]
fn what_cosign_signed_is_accepted() {
    let policy = policy(&[(
        "cosign",
        data("cosign.pub"),
        "repositories = [\"127.0.0.1:15871/team/*\"]",
    )]);
    let artifact = Digest::of(&data("artifact-manifest.json"));
    let (manifest, payload) = (data("signature-manifest.json"), data("payload.json"));
    let image = repository("127.0.0.1:15871/team/app");
    let signing = check(&policy, &image, artifact, &manifest, &payload).unwrap();
    assert_eq!(policy.key_name(signing.key()), Some("cosign"));
    assert_eq!(
        (signing.identity(), signing.artifact()),
        ("127.0.0.1:15871/team/app", artifact)
    );

    let other = check(&policy, &image, Digest::of(b"other"), &manifest, &payload)
        .unwrap_err()
        .to_string();
    assert!(other.contains("something else"), "{other}");
    let other = check(
        &policy,
        &repository("127.0.0.1:15871/team/b"),
        artifact,
        &manifest,
        &payload,
    );
    assert!(other.unwrap_err().to_string().contains("identity = \"any\""));
    let other = check(
        &policy,
        &repository("127.0.0.1:15871/b"),
        artifact,
        &manifest,
        &payload,
    );
    assert!(matches!(other, Err(VerifyError::NoKey(_))));
    let none: [&[u8]; 0] = [];
    let manifest = SignatureManifest::parse(&manifest).unwrap();
    let missing = verify(&policy, &image, artifact, &manifest, &none)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("is not there"), "{missing}");
}

#[test]
fn cosigns_encrypted_key_opens_and_signs_like_cosign() {
    let pem = data("cosign.key");
    let key = PrivateKey::from_pem(&pem, Some(PASSWORD)).unwrap();
    let public = PublicKey::from_pem(&data("cosign.pub")).unwrap();
    assert_eq!(key.public().unwrap().id(), public.id());
    assert_eq!(
        PrivateKey::from_pem(&pem, Some(b"password 1")).unwrap_err(),
        KeyError::Password
    );
    assert_eq!(
        PrivateKey::from_pem(&pem, None).unwrap_err(),
        KeyError::NoPassword
    );

    // Our payload is cosign's, byte for byte, and so is what surrounds the signature (which is random in
    // cosign).
    let artifact = Digest::of(&data("artifact-manifest.json"));
    let push = sign(&key, &repository("127.0.0.1:15871/team/app"), artifact, None).unwrap();
    assert_eq!(push.payload, data("payload.json"));
    assert_eq!(push.tag, format!("sha256-{}.sig", artifact.hex()));
    let shape = |manifest: &[u8]| {
        let mut value: Value = serde_json::from_slice(manifest).unwrap();
        value["layers"][0]["annotations"][SIGNATURE_ANNOTATION] = Value::Null;
        value["config"] = Value::Null;
        value
    };
    assert_eq!(shape(&push.manifest), shape(&data("signature-manifest.json")));
}

#[test]
fn a_second_signature_keeps_the_first() {
    let image = repository("r.example.com/app");
    let artifact = Digest::of(b"artifact");
    let first = sign(&key(1), &image, artifact, None).unwrap();
    let second = sign(&key(2), &image, artifact, Some(&first.manifest)).unwrap();
    let again = sign(&key(1), &image, artifact, Some(&second.manifest)).unwrap();
    assert_eq!(again.manifest, second.manifest, "signing twice changes nothing");
    assert_eq!(
        SignatureManifest::parse(&second.manifest)
            .unwrap()
            .signatures()
            .len(),
        2
    );
    for number in [1, 2] {
        check(
            &policy_of(&key(number), ALL),
            &image,
            artifact,
            &second.manifest,
            &second.payload,
        )
        .unwrap();
    }
    let error = check(
        &policy_of(&key(3), ALL),
        &image,
        artifact,
        &second.manifest,
        &second.payload,
    );
    let text = error.unwrap_err().to_string();
    assert_eq!(text.matches("by none of the keys ci").count(), 2, "{text}");
    // The configuration describes all layers, or clients would reject the image.
    let config: Value = serde_json::from_slice(&second.config).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    let manifest: Value = serde_json::from_slice(&second.manifest).unwrap();
    assert_eq!(
        manifest["config"]["digest"],
        Digest::of(&second.config).to_string()
    );
    assert_eq!(manifest["config"]["size"], second.config.len());
    // A manifest that is not understood is not overwritten.
    let text = sign(&key(1), &image, artifact, Some(b"{}"))
        .unwrap_err()
        .to_string();
    assert!(text.contains(&signature_tag(artifact)), "{text}");
}

#[test]
fn a_cosign_signature_survives_ours_beside_it() {
    let image = repository("127.0.0.1:15871/team/app");
    let artifact = Digest::of(&data("artifact-manifest.json"));
    let push = sign(&key(1), &image, artifact, Some(&data("signature-manifest.json"))).unwrap();
    let cosign = policy(&[("cosign", data("cosign.pub"), ALL)]);
    check(&cosign, &image, artifact, &push.manifest, &push.payload).unwrap();
    check(
        &policy_of(&key(1), ALL),
        &image,
        artifact,
        &push.manifest,
        &push.payload,
    )
    .unwrap();
}

#[test]
fn identity_any_accepts_copies() {
    let artifact = Digest::of(b"artifact");
    let push = sign(&key(1), &repository("a.example.com/app"), artifact, None).unwrap();
    let copy = repository("b.example.com/app");
    let any = policy_of(&key(1), "repositories = [\"**\"]\nidentity = \"any\"");
    assert!(
        check(
            &policy_of(&key(1), ALL),
            &copy,
            artifact,
            &push.manifest,
            &push.payload
        )
        .is_err()
    );
    check(&any, &copy, artifact, &push.manifest, &push.payload).unwrap();
}

/// A signature manifest around any payload, signed by key 1.
fn manifest_of(payload: &[u8]) -> Vec<u8> {
    use base64ct::Encoding;
    let signature = base64ct::Base64::encode_string(&key(1).sign(payload));
    let layer = json!({
        "mediaType": SIGNATURE_LAYER_MEDIA_TYPE, "size": payload.len(), "digest": Digest::of(payload),
        "annotations": { SIGNATURE_ANNOTATION: signature },
    });
    json!({ "schemaVersion": 2, "config": {}, "layers": [layer] })
        .to_string()
        .into_bytes()
}

#[test]
fn only_the_right_kind_of_statement_counts() {
    let image = repository("r.example.com/app");
    let artifact = Digest::of(b"artifact");
    let good = Payload {
        manifest: artifact,
        identity: image.clone(),
    }
    .to_json()
    .unwrap();
    let policy = policy_of(&key(1), ALL);
    let rejected = |payload: &[u8], want: &str| {
        let error = check(&policy, &image, artifact, &manifest_of(payload), payload)
            .unwrap_err()
            .to_string();
        assert!(error.contains(want), "{error}");
    };
    check(&policy, &image, artifact, &manifest_of(&good), &good).unwrap();
    let text = String::from_utf8(good).unwrap();
    rejected(
        text.replace("cosign container image", "atomic container")
            .as_bytes(),
        "atomic container",
    );
    rejected(
        text.replace("\"type\"", "\"new\":1,\"type\"").as_bytes(),
        "unknown field",
    );
    let twice = format!("\"docker-manifest-digest\":\"{artifact}\",\"docker-manifest-digest\"");
    rejected(
        text.replace("\"docker-manifest-digest\"", &twice).as_bytes(),
        "duplicate field",
    );
    rejected(text.replace("sha256:", "sha512:").as_bytes(), "sha512");
    rejected(
        text.replace("r.example.com/app", "").as_bytes(),
        "names no repository",
    );
    rejected(b"", "simple-signing");
    // Larger than any payload: not even fetched.
    rejected(&[b' '; 64 * 1024 + 1], "there is no signature");
}

#[test]
fn manifests_that_are_none_are_refused() {
    let with = |field: &str, value: Value| {
        let mut manifest = json!({ "schemaVersion": 2, "config": {}, "layers": [] });
        manifest[field] = value;
        SignatureManifest::parse(manifest.to_string().as_bytes())
    };
    assert!(with("annotations", json!({})).is_ok());
    assert!(with("schemaVersion", json!(1)).is_err());
    assert!(with("manifests", json!([])).is_err());
    assert!(with("mediaType", json!("application/vnd.oci.image.index.v1+json")).is_err());
    let layer = json!({ "mediaType": "x", "size": 1, "digest": Digest::of(b"") });
    assert_eq!(with("layers", json!([layer])).unwrap().signatures().len(), 0);
    assert!(with("layers", json!(vec![layer; 65])).is_err());
    assert!(
        with(
            "layers",
            json!([{ "mediaType": "x", "size": -1, "digest": Digest::of(b"") }])
        )
        .is_err()
    );
    assert!(SignatureManifest::parse(&vec![b' '; 1024 * 1024 + 1]).is_err());
}

proptest! {
    #[test]
    fn a_changed_byte_is_noticed(secret in 1u8..=254, position in any::<prop::sample::Index>(), bit in 0u8..8) {
        let private = key(secret);
        let public = private.public().unwrap();
        let message = b"what was signed".to_vec();
        let signature = private.sign(&message);
        prop_assert!(public.accepts(&message, &signature));
        let mut changed = message.clone();
        *position.get_mut(&mut changed) ^= 1 << bit;
        prop_assert!(!public.accepts(&changed, &signature));
        let mut changed = signature.clone();
        *position.get_mut(&mut changed) ^= 1 << bit;
        prop_assert!(!public.accepts(&message, &changed));
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), pem in "-----BEGIN [A-Z ]{0,12}-----\n[A-Za-z0-9=\n]{0,80}\n-----END [A-Z ]{0,12}-----\n?") {
        let _ = SignatureManifest::parse(&bytes);
        let _ = Payload::parse(&bytes);
        let _ = PublicKey::from_pem(&bytes);
        let _ = PublicKey::from_pem(pem.as_bytes());
        let _ = PrivateKey::from_pem(pem.as_bytes(), Some(b""));
        let _ = TrustFile::parse(&bytes);
        let _ = key(1).public().unwrap().accepts(b"", &bytes);
    }
}
