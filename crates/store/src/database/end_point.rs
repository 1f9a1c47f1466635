//! By what a connection is named when a password is bound to it: `tls-server-end-point` of RFC 5929, a hash of the server's certificate.

use sha2_resumable::{Digest, Sha256, Sha384, Sha512};

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `1.2.840.113549.1.1`, RSA by PKCS #1, and how its signatures go on.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// `1.2.840.10045.4.3`, ECDSA with SHA-2.
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];

/// The hash of a certificate, by the algorithm that it was signed with. None where the RFC leaves open which that is (Ed25519), and for
/// algorithms that rustls takes no certificate by.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    let (&last, family) = algorithm.split_last()?;
    Some(match (family, last) {
        (RSA, 11) | (ECDSA, 2) => Sha256::digest(certificate).to_vec(),
        (RSA, 12) | (ECDSA, 3) => Sha384::digest(certificate).to_vec(),
        (RSA, 13) | (ECDSA, 4) => Sha512::digest(certificate).to_vec(),
        _ => return None,
    })
}

/// The object identifier in the second member of a certificate. The first is what was signed.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (members, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(members, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    Some(identifier)
}

/// The content of the first element of some DER, which has this tag, and what comes after it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // No certificate has 16 MiB.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let add = |sum: usize, digit: &u8| (sum << 8) | usize::from(*digit);
            (digits.iter().fold(0, add), rest)
        }
        _ => return None,
    };
    let element = rest.split_at_checked(length)?;
    (found == tag).then_some(element)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signed_by(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_signature_of_a_certificate_decides_on_the_hash() {
        let certificate = signed_by(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(
            end_point(&certificate),
            Some(Sha256::digest(&certificate).to_vec())
        );
        let certificate = signed_by(&rcgen::PKCS_ECDSA_P384_SHA384);
        assert_eq!(
            end_point(&certificate),
            Some(Sha384::digest(&certificate).to_vec())
        );
        assert_eq!(end_point(&signed_by(&rcgen::PKCS_ED25519)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = end_point(&bytes);
        }

        #[test]
        fn a_certificate_that_was_cut_is_read_without_a_panic(length in 0_usize..400) {
            let certificate = signed_by(&rcgen::PKCS_ECDSA_P256_SHA256);
            let _ = end_point(certificate.get(..length).unwrap_or(&certificate));
        }
    }
}
