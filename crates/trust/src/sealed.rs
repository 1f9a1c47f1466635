//! Cosign's encrypted private keys: JSON with scrypt's parameters and a NaCl secretbox (XSalsa20, Poly1305)
//! around a PKCS#8 key. The format is that of securesystemslib's Go package `encrypted`, which cosign uses.

use base64ct::{Base64, Encoding};
use crypto_secretbox::aead::{Aead, KeyInit};
use crypto_secretbox::{Nonce, XSalsa20Poly1305};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::key_error::KeyError;

/// Most memory that scrypt may ask for, in bytes. Cosign's own parameters take 64 MiB.
const MAX_MEMORY: u64 = 256 * 1024 * 1024;
/// Most passes over that memory; cosign uses one.
const MAX_PASSES: u32 = 4;
/// Longest salt, in bytes; cosign uses 32.
const MAX_SALT: usize = 1024;

#[derive(Deserialize)]
struct Envelope {
    kdf: KeyDerivation,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Deserialize)]
struct KeyDerivation {
    name: String,
    params: Parameters,
    salt: String,
}

#[derive(Deserialize)]
struct Parameters {
    #[serde(rename = "N")]
    cost: u64,
    r: u32,
    p: u32,
}

#[derive(Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

/// Opens the envelope with `password`; gives the PKCS#8 key in DER.
pub(super) fn open(envelope: &[u8], password: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let damaged = |what: &str| KeyError::Envelope(what.to_owned());
    let envelope: Envelope = serde_json::from_slice(envelope).map_err(|e| damaged(&e.to_string()))?;
    if envelope.kdf.name != "scrypt" || envelope.cipher.name != "nacl/secretbox" {
        return Err(damaged("it does not use scrypt and nacl/secretbox"));
    }
    let decode = |text: &str, what: &str| Base64::decode_vec(text).map_err(|_| damaged(what));
    let salt = decode(&envelope.kdf.salt, "its salt is not base64")?;
    let nonce = decode(&envelope.cipher.nonce, "its nonce is not base64")?;
    let nonce: [u8; 24] = nonce
        .try_into()
        .map_err(|_| damaged("its nonce does not have 24 bytes"))?;
    let ciphertext = decode(&envelope.ciphertext, "its ciphertext is not base64")?;

    let key = derive(password, &salt, &envelope.kdf.params)?;
    let cipher =
        XSalsa20Poly1305::new_from_slice(key.as_slice()).map_err(|_| damaged("its key has a wrong size"))?;
    let plain = cipher
        .decrypt(&Nonce::from(nonce), ciphertext.as_slice())
        .map_err(|_| KeyError::Password)?;
    Ok(Zeroizing::new(plain))
}

fn derive(password: &[u8], salt: &[u8], params: &Parameters) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let damaged = |what: &str| KeyError::Envelope(what.to_owned());
    let memory = params
        .cost
        .checked_mul(128)
        .and_then(|bytes| bytes.checked_mul(u64::from(params.r)));
    let within = memory.is_some_and(|bytes| bytes <= MAX_MEMORY) && params.p <= MAX_PASSES;
    if !within || salt.len() > MAX_SALT || !params.cost.is_power_of_two() {
        return Err(damaged(
            "its scrypt parameters are not within 256 MiB and 4 passes",
        ));
    }
    let log_cost = u8::try_from(params.cost.trailing_zeros()).map_err(|_| damaged("its scrypt cost"))?;
    let params = scrypt::Params::new(log_cost, params.r, params.p, 32)
        .map_err(|_| damaged("its scrypt parameters are not valid"))?;
    let mut key = Zeroizing::new([0; 32]);
    scrypt::scrypt(password, salt, &params, key.as_mut_slice())
        .map_err(|_| damaged("its scrypt parameters are not valid"))?;
    Ok(key)
}
