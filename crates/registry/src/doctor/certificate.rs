//! The certificate: whether it and its key can be used, and for how long.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use xebec_kernel::clock::{parse_rfc3339, seconds_since_1970};
use xebec_registry::config::Config;
use xebec_registry::server::TlsSettings;

use super::found::Found;

const DAY: i64 = 86_400;
/// With fewer, somebody should have renewed it.
const FEW_DAYS: i64 = 14;

pub(super) fn certificate(config: &Config) -> Option<Found> {
    let Some(tls) = &config.server.tls else {
        let is_local = |address: &String| {
            address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("localhost:")
        };
        let said = "none is set up ([server.tls]): passwords and images go over the network unprotected";
        return (!config.server.listen.iter().all(is_local)).then(|| Found::note("certificate", said));
    };
    let what = format!("certificate {}", tls.certificate.display());
    Some(match end(tls) {
        Err(cause) => Found::broken(what, cause),
        Ok(end) => {
            let now = i64::try_from(seconds_since_1970()).unwrap_or(i64::MAX);
            let left = (end - now).div_euclid(DAY);
            match left {
                ..0 => Found::broken(what, format!("it ended {} days ago; renew it", -left)),
                0..FEW_DAYS => Found::note(what, format!("it ends in {left} days; renew it")),
                _ => Found::well(what, format!("it is its key's, and ends in {left} days")),
            }
        }
    })
}

/// When the first of the certificates ends, in seconds since 1970; or what is wrong.
fn end(tls: &TlsSettings) -> Result<i64, String> {
    let unreadable = |path: &std::path::Path, cause: &dyn std::fmt::Display| {
        format!(
            "{} cannot be read as PEM: {cause}; name a file that this user may read",
            path.display()
        )
    };
    let chain = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(&tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| unreadable(&tls.key, &error))?;
    let first = chain.first().cloned().ok_or("the file holds no certificate")?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
        format!(
            "it and the key {} are not for each other: {error}",
            tls.key.display()
        )
    })?;
    not_after(&first).ok_or_else(|| "its end cannot be read; see it with `openssl x509 -enddate`".to_owned())
}

/// The end of a certificate's validity (RFC 5280, 4.1), in seconds since 1970: the second time in what is signed.
fn not_after(certificate: &[u8]) -> Option<i64> {
    let whole = Element::first(certificate)?;
    let signed = Element::first(whole.content)?;
    let mut at = Element::first(signed.content)?;
    // The version has a tag of its own, and may be left out.
    if at.tag == 0xA0 {
        at = Element::first(at.rest)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        at = Element::first(at.rest)?;
    }
    let before = Element::first(at.content)?;
    let after = Element::first(before.rest)?;
    seconds(after.tag, std::str::from_utf8(after.content).ok()?)
}

/// An element of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let (tag, bytes) = bytes.split_first()?;
        let (first, mut bytes) = bytes.split_first()?;
        let mut length = usize::from(*first);
        if length >= 0x80 {
            let digits = bytes.get(..length - 0x80).filter(|digits| digits.len() <= 4)?;
            bytes = bytes.get(digits.len()..)?;
            length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        }
        Some(Self {
            tag: *tag,
            content: bytes.get(..length)?,
            rest: bytes.get(length..)?,
        })
    }
}

/// `YYMMDDHHMMSSZ` (tag 0x17) or `YYYYMMDDHHMMSSZ` (0x18).
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let (year, rest) = match tag {
        0x17 => {
            let year: i64 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        0x18 => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    let (month, day) = (part(0)?, part(2)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    let text = format!("{year:04}-{month}-{day}T{hour}:{minute}:{second}Z");
    parse_rfc3339(&text).map(|(seconds, _)| seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds(0x17, "700101000000Z"), Some(0));
        assert_eq!(seconds(0x17, "240229120000Z"), Some(1_709_208_000));
        assert_eq!(seconds(0x18, "20500301000001Z"), Some(2_529_705_601));
        assert_eq!(seconds(0x18, "2050"), None);
    }

    #[test]
    fn what_is_cut_off_has_no_end() {
        for length in 0..40 {
            assert_eq!(not_after(&vec![0x30; length]), None);
        }
    }
}
