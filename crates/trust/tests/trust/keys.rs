//! Keys in files, against `openssl` if it is there, and against hostile input; and the passwords that open them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use xebec_format::digest::Digest;
use xebec_trust::{KeyError, PrivateKey, PublicKey};

use crate::support::data;

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
            .args(["--exact", "keys::a_password_comes_from_the_environment"])
            .env_remove(ours)
            .env_remove(cosigns)
            .envs(variables.iter().copied())
            .env(EXPECTED, format!("{expected:?}"))
            .output();
        let said = String::from_utf8_lossy(&child.unwrap().stdout).into_owned();
        assert!(said.contains("1 passed"), "{variables:?}: {said}");
    }
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
