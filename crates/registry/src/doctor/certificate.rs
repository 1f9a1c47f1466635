//! The certificate: whether it and its key can be used, and for how long.

use std::time::Duration;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode as _, Reader as _, SliceReader, Tag};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use xebec_kernel::clock::seconds_since_1970;
use xebec_registry_server::config::Config;
use xebec_registry_server::server::TlsSettings;

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
    let mut members = inside(AnyRef::from_der(certificate))?;
    let mut signed = inside(AnyRef::decode(&mut members))?;
    // The version has a tag of its own, and may be left out.
    let has_version = signed.peek_tag().ok()?.is_context_specific();
    // Serial number, algorithm, issuer.
    for _ in 0..3 + usize::from(has_version) {
        AnyRef::decode(&mut signed).ok()?;
    }
    let mut validity = inside(AnyRef::decode(&mut signed))?;
    let (_begin, end) = (time(&mut validity)?, time(&mut validity)?);
    i64::try_from(end.as_secs()).ok()
}

/// The contents of an element.
fn inside(element: der::Result<AnyRef<'_>>) -> Option<SliceReader<'_>> {
    SliceReader::new(element.ok()?.value()).ok()
}

/// A time in either form, since 1970.
fn time(times: &mut SliceReader<'_>) -> Option<Duration> {
    match times.peek_tag().ok()? {
        Tag::UtcTime => UtcTime::decode(times).ok().map(|time| time.to_unix_duration()),
        _ => GeneralizedTime::decode(times)
            .ok()
            .map(|time| time.to_unix_duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that ends then.
    fn until(year: i32, month: u8, day: u8) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["r.example".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(1990, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(year, month, day);
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    /// The years until 2049 have two digits there.
    #[test]
    fn ends_are_read_in_both_forms() {
        assert_eq!(not_after(&until(2024, 2, 29)), Some(1_709_164_800));
        assert_eq!(not_after(&until(2050, 3, 1)), Some(2_529_705_600));
    }

    #[test]
    fn what_is_cut_off_has_no_end() {
        let certificate = until(2030, 1, 1);
        for length in 0..certificate.len() {
            assert_eq!(not_after(&certificate[..length]), None);
        }
        for length in 0..40 {
            assert_eq!(not_after(&vec![0x30; length]), None);
        }
    }
}
