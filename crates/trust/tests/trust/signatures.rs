//! Signatures against independent programs: files that cosign wrote, `openssl` if it is there, `cosign` if it
//! is there; and against hostile input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use serde_json::{Value, json};
use xebec_format::digest::Digest;
use xebec_trust::{
    KeyError, MAX_PAYLOAD, MAX_SIGNATURE_MANIFEST, MAX_SIGNATURES, MAX_TRUST_FILE, Payload, PayloadError,
    Policy, PrivateKey, PublicKey, RepositoryName, SIGNATURE_ANNOTATION, SIGNATURE_LAYER_MEDIA_TYPE,
    SignatureManifest, SignatureManifestError, Signing, TrustFile, VerifyError, sign, signature_tag, verify,
};

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

/// The variable that holds the expected password, in the process that looks for it.
const EXPECTED: &str = "XEBEC_TEST_EXPECTED_PASSWORD";

/// Each environment is that of a process of its own.
#[test]
fn a_password_comes_from_the_environment() {
    if let Some(expected) = std::env::var_os(EXPECTED) {
        let found = xebec_trust::password_from_environment().map(|found| found.escape_ascii().to_string());
        assert_eq!(format!("{found:?}"), expected.to_str().unwrap());
        return;
    }
    let (ours, cosigns) = ("XEBEC_KEY_PASSWORD", "COSIGN_PASSWORD");
    for (variables, expected) in [
        (&[][..], None),
        (&[(ours, "one")], Some("one")),
        (&[(cosigns, "two")], Some("two")),
        (&[(ours, "one"), (cosigns, "two")], Some("one")),
        (&[(ours, ""), (cosigns, "two")], Some("")),
        (&[(cosigns, "")], Some("")),
    ] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signatures::a_password_comes_from_the_environment"])
            .env_remove(ours)
            .env_remove(cosigns)
            .envs(variables.iter().copied())
            .env(EXPECTED, format!("{expected:?}"))
            .output();
        let said = String::from_utf8_lossy(&child.unwrap().stdout).into_owned();
        assert!(said.contains("1 passed"), "{variables:?}: {said}");
    }
}

const PASSWORD: &[u8] = "pässword 1".as_bytes();

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/trust/data")
        .join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn repository(name: &str) -> RepositoryName {
    RepositoryName::from_docker_reference(name).unwrap()
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_secret(&[number; 32]).unwrap()
}

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

#[test]
fn a_key_file_may_have_text_before_the_key_but_not_much() {
    let pem = data("cosign.pub");
    let with_text = |size: usize| [vec![b'#'; size - pem.len() - 1], vec![b'\n'], pem.clone()].concat();
    let wanted = PublicKey::from_pem(&pem).unwrap().id();
    assert_eq!(PublicKey::from_pem(&with_text(64 << 10)).unwrap().id(), wanted);
    assert!(PublicKey::from_pem(&with_text((64 << 10) + 1)).is_err());
}

#[test]
fn keys_that_are_none_are_named() {
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let public = String::from_utf8(data("cosign.pub")).unwrap();
    assert_eq!(PublicKey::from_pem(b"").unwrap_err(), KeyError::Pem);
    assert_eq!(
        PublicKey::from_pem(b"-----BEGIN \xff").unwrap_err(),
        KeyError::Pem
    );
    assert_eq!(
        PublicKey::from_pem(&public.as_bytes()[..80]).unwrap_err(),
        KeyError::Pem
    );
    assert!(matches!(
        PublicKey::from_pem(private.as_bytes()),
        Err(KeyError::Label { .. })
    ));
    assert!(matches!(
        PrivateKey::from_pem(public.as_bytes(), None),
        Err(KeyError::Label { .. })
    ));
    assert_eq!(
        PrivateKey::from_pem(private.as_bytes(), None).unwrap_err(),
        KeyError::Algorithm
    );
    let encrypted = private.replace("PRIVATE", "ENCRYPTED PRIVATE");
    assert_eq!(
        PrivateKey::from_pem(encrypted.as_bytes(), None).unwrap_err(),
        KeyError::Encrypted
    );
    let ed25519 = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                   -----END PUBLIC KEY-----\n";
    assert_eq!(
        PublicKey::from_pem(ed25519.as_bytes()).unwrap_err(),
        KeyError::Algorithm
    );
    // Text around the block, as openssl writes it, does no harm.
    PublicKey::from_pem(format!("a key\n{public}\nmore").as_bytes()).unwrap();
}

#[test]
fn an_encrypted_key_cannot_ask_for_much_memory() {
    use base64ct::{Base64, Encoding};
    let envelope = |n: u64, r: u64, p: u64, nonce: usize| {
        let nonce = Base64::encode_string(&vec![0; nonce]);
        sealed(&json!({
            "kdf": { "name": "scrypt", "params": { "N": n, "r": r, "p": p }, "salt": "AAAA" },
            "cipher": { "name": "nacl/secretbox", "nonce": nonce },
            "ciphertext": Base64::encode_string(&[0; 64]),
        }))
    };
    assert_eq!(envelope(1024, 8, 1, 24), KeyError::Password);
    assert_eq!(envelope(2, 8, 4, 24), KeyError::Password, "as often as may be");
    for (n, r, p, nonce) in [
        (1 << 40, 8, 1, 24),
        (u64::MAX, 8, 1, 24),
        (1 << 19, 8, 1, 24),
        (1024, u64::from(u32::MAX), 1, 24),
        (1024, 8, 1 << 30, 24),
        (2, 8, 5, 24),
        (1000, 8, 1, 24),
        (0, 8, 1, 24),
        (1024, 0, 1, 24),
        (1024, 8, 0, 24),
        (1024, 8, 1, 23),
    ] {
        assert!(
            matches!(envelope(n, r, p, nonce), KeyError::Envelope(_)),
            "{n} {r} {p} {nonce}"
        );
    }
}

/// Why no key comes out of an encrypted one.
fn sealed(envelope: &Value) -> KeyError {
    use base64ct::{Base64, Encoding};
    let body = Base64::encode_string(envelope.to_string().as_bytes());
    let lines: Vec<&str> = body
        .as_bytes()
        .chunks(64)
        .map(|l| std::str::from_utf8(l).unwrap())
        .collect();
    let label = "ENCRYPTED COSIGN PRIVATE KEY";
    let pem = format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    );
    PrivateKey::from_pem(pem.as_bytes(), Some(b"")).unwrap_err()
}

#[test]
fn a_key_that_is_encrypted_in_another_way_is_not_tried() {
    use base64ct::{Base64, Encoding};
    let envelope = |kdf: &str, cipher: &str, salt: usize| {
        sealed(&json!({
            "kdf": { "name": kdf, "params": { "N": 2, "r": 8, "p": 1 },
                     "salt": Base64::encode_string(&vec![0; salt]) },
            "cipher": { "name": cipher, "nonce": Base64::encode_string(&[0; 24]) },
            "ciphertext": Base64::encode_string(&[0; 64]),
        }))
    };
    assert_eq!(envelope("scrypt", "nacl/secretbox", 1024), KeyError::Password);
    for (kdf, cipher, salt) in [
        ("argon2", "nacl/secretbox", 32),
        ("scrypt", "aes", 32),
        ("scrypt", "nacl/secretbox", 1025),
        ("scrypt", "nacl/secretbox", 2048),
    ] {
        let refused = envelope(kdf, cipher, salt);
        assert!(matches!(refused, KeyError::Envelope(_)), "{kdf} {cipher} {salt}");
    }
}

/// Runs `openssl`; `None`, said aloud, if it is not there.
fn openssl(arguments: &[&str], directory: &Path) -> Option<bool> {
    match Command::new("openssl")
        .args(arguments)
        .current_dir(directory)
        .output()
    {
        Ok(output) => Some(output.status.success()),
        Err(error) => {
            println!("SKIPPED: openssl: {error}");
            None
        }
    }
}

#[test]
fn openssl_and_we_agree() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let run = |arguments: &str| {
        openssl(&arguments.split(' ').collect::<Vec<_>>(), directory.path())
            .inspect(|success| assert!(success, "openssl {arguments}"))
    };
    // SEC1 with curve parameters in front, SEC1, PKCS#8; 16 messages each, so that odd encodings of numbers
    // occur.
    for (name, make) in [
        ("params", "ecparam -name prime256v1 -genkey -out params.key"),
        ("sec1", "ecparam -name prime256v1 -genkey -noout -out sec1.key"),
        (
            "pkcs8",
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out pkcs8.key",
        ),
    ] {
        if run(make).is_none() {
            return;
        }
        run(&format!("ec -in {name}.key -pubout -out {name}.pub"));
        let private = PrivateKey::from_pem(&fs::read(at(&format!("{name}.key"))).unwrap(), None).unwrap();
        let public = PublicKey::from_pem(&fs::read(at(&format!("{name}.pub"))).unwrap()).unwrap();
        assert_eq!(private.public().unwrap().id(), public.id());
        for number in 0..16 {
            let message = format!("{name} {number}");
            fs::write(at("message"), &message).unwrap();
            fs::write(at("ours"), private.sign(message.as_bytes())).unwrap();
            run(&format!(
                "dgst -sha256 -verify {name}.pub -signature ours message"
            ));
            run(&format!("dgst -sha256 -sign {name}.key -out theirs message"));
            assert!(public.accepts(message.as_bytes(), &fs::read(at("theirs")).unwrap()));
            assert!(!public.accepts(b"another message", &fs::read(at("theirs")).unwrap()));
        }
        // The identity is what docs/trust.md says it is.
        run(&format!(
            "pkey -pubin -in {name}.pub -outform DER -out {name}.der"
        ));
        let der = fs::read(at(&format!("{name}.der"))).unwrap();
        assert_eq!(public.id().to_string(), Digest::of(&der).to_string());
    }
    run("ecparam -name secp384r1 -genkey -noout -out p384.key");
    let error = PrivateKey::from_pem(&fs::read(at("p384.key")).unwrap(), None).unwrap_err();
    assert_eq!(error, KeyError::Algorithm);
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
