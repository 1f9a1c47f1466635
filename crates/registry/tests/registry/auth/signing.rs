//! Issuers of tokens for tests: they sign what they are told, right or wrong.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use xebec_access::jwk::KeySet;
use xebec_kernel::clock::seconds_since_1970;

/// A key of an issuer.
pub(crate) enum Issuer {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    pub(crate) fn rsa() -> Self {
        let der = PrivatePkcs8KeyDer::from_pem_slice(include_bytes!("../keys/rsa.pem")).unwrap();
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap()))
    }

    pub(crate) fn p256() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    pub(crate) fn ed25519() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    pub(crate) fn all() -> [Self; 3] {
        [Self::rsa(), Self::p256(), Self::ed25519()]
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    /// The public key as a JSON Web Key.
    pub(crate) fn jwk(&self, kid: &str) -> Value {
        let mut jwk = match self {
            Self::Rsa(key) => {
                let numbers = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encode(numbers.n), "e": encode(numbers.e)})
            }
            Self::P256(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": encode(&point[1..33]), "y": encode(&point[33..])})
            }
            Self::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref())})
            }
        };
        jwk["kid"] = kid.into();
        jwk["use"] = "sig".into();
        jwk
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .unwrap();
                signature
            }
            Self::P256(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with any header and any claims.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", encode(signature))
    }

    /// A token with the header that such a token has.
    pub(crate) fn sound(&self, kid: &str, claims: &Value) -> String {
        self.token(
            &json!({"alg": self.algorithm(), "typ": "JWT", "kid": kid}),
            claims,
        )
    }
}

/// A set of these keys, by name.
pub(crate) fn set(keys: &[(&Issuer, &str)]) -> Vec<u8> {
    let keys: Vec<Value> = keys.iter().map(|(issuer, kid)| issuer.jwk(kid)).collect();
    json!({"keys": keys}).to_string().into_bytes()
}

pub(crate) fn keys(keys: &[(&Issuer, &str)]) -> KeySet {
    KeySet::parse(&set(keys)).unwrap()
}

/// Claims that are as they should be.
pub(crate) fn claims() -> Value {
    let now = seconds_since_1970();
    json!({"iss": "https://issuer.example", "aud": "registry.example", "sub": "anna", "exp": now + 300, "nbf": now - 10, "iat": now})
}

/// The same with one of them other; null removes it.
pub(crate) fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}
