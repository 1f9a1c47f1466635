//! Public keys in DER, as PEM files and certificates hold them (RFC 5280, `SubjectPublicKeyInfo`): only the three kinds that tokens
//! are signed with.

use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

use crate::public_key::PublicKey;

/// The bytes before the 65 bytes of a P-256 point.
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The bytes before the 32 bytes of an Ed25519 key.
const ED25519_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The algorithm identifier of RSA.
const RSA_IDENTIFIER: [u8; 15] = [
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// RSA keys that are accepted, in bytes of the modulus: 2048 to 8192 bits, which is what the verifier takes.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// An RSA key of these numbers.
pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<PublicKey, String> {
    let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
    if !RSA_BYTES.contains(&modulus.len()) {
        return Err(format!(
            "an RSA key has {} bits; 2048 to 8192 are accepted",
            modulus.len() * 8
        ));
    }
    if exponent.is_empty() || exponent.len() > 4 {
        return Err("an RSA key's exponent has not 1 to 4 bytes".to_owned());
    }
    Ok(PublicKey::Rsa {
        modulus: modulus.to_vec(),
        exponent: exponent.to_vec(),
    })
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// The DER form of a key.
pub(super) fn encode(key: &PublicKey) -> Vec<u8> {
    match key {
        PublicKey::P256(point) => [&P256_PREFIX[..], point].concat(),
        PublicKey::Ed25519(key) => [&ED25519_PREFIX[..], key].concat(),
        PublicKey::Rsa { modulus, exponent } => {
            let numbers = [integer(modulus), integer(exponent)].concat();
            let key = [vec![0], element(SEQUENCE, &numbers)].concat();
            element(
                SEQUENCE,
                &[RSA_IDENTIFIER.to_vec(), element(BIT_STRING, &key)].concat(),
            )
        }
    }
}

fn integer(number: &[u8]) -> Vec<u8> {
    // A number whose first bit is set would be read as negative.
    match number.first() {
        Some(first) if *first >= 0x80 => element(INTEGER, &[&[0][..], number].concat()),
        _ => element(INTEGER, number),
    }
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut bytes = vec![tag];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 0x80 => bytes.push(short),
        (Ok(short), _) => bytes.extend([0x81, short]),
        (_, long) => {
            bytes.push(0x82);
            // A key of 8192 bits has less than 65,536 bytes.
            bytes.extend(long.unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    bytes.extend(content);
    bytes
}

/// The key of a certificate. Whether the certificate is valid is not asked: it is a file of this host's administrator.
pub(super) fn of_certificate(certificate: &CertificateDer<'_>) -> Result<PublicKey, String> {
    let parsed = ParsedCertificate::try_from(certificate)
        .map_err(|error| format!("a certificate is damaged: {error}"))?;
    decode(parsed.subject_public_key_info().as_ref())
}

/// The key of a DER form.
pub(super) fn decode(der: &[u8]) -> Result<PublicKey, String> {
    if let Some(point) = der.strip_prefix(&P256_PREFIX)
        && point.len() == 65
        && point.first() == Some(&4)
    {
        return Ok(PublicKey::P256(point.to_vec()));
    }
    if let Some(key) = der.strip_prefix(&ED25519_PREFIX)
        && key.len() == 32
    {
        return Ok(PublicKey::Ed25519(key.to_vec()));
    }
    let other = || "a key is neither RSA, P-256 nor Ed25519".to_owned();
    let (outer, rest) = take(der, SEQUENCE).ok_or_else(other)?;
    let bits = outer.strip_prefix(&RSA_IDENTIFIER).ok_or_else(other)?;
    let (bits, more) = take(bits, BIT_STRING).ok_or_else(other)?;
    let key = bits.strip_prefix(&[0]).ok_or_else(other)?;
    let (numbers, even_more) = take(key, SEQUENCE).ok_or_else(other)?;
    let (modulus, numbers) = take(numbers, INTEGER).ok_or_else(other)?;
    let (exponent, last) = take(numbers, INTEGER).ok_or_else(other)?;
    if [rest, more, even_more, last].iter().any(|rest| !rest.is_empty()) {
        return Err(other());
    }
    rsa(modulus, exponent)
}

/// The content of the element that `bytes` begin with, and what follows it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, bytes) = bytes.split_first()?;
    let (first, bytes) = bytes.split_first()?;
    let (length, bytes) = match first {
        short @ 0..=0x7f => (usize::from(*short), bytes),
        0x81 => {
            let (length, bytes) = bytes.split_first()?;
            (usize::from(*length), bytes)
        }
        0x82 => {
            let (length, bytes) = bytes.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), bytes)
        }
        _ => return None,
    };
    (*found == tag && bytes.len() >= length).then(|| bytes.split_at(length))
}
