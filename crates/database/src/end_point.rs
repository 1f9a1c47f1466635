//! By what a connection is named when a password is bound to it: `tls-server-end-point` of RFC 5929, a hash of the server's certificate.

use der::asn1::{AnyRef, ObjectIdentifier};
use der::{Decode as _, SliceReader};
use sha2_resumable::{Digest, Sha256, Sha384, Sha512};

/// Signatures with RSA by PKCS #1, and with ECDSA, by what they hash with (RFC 8017, RFC 5758).
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const RSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12");
const RSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ECDSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");

/// The hash of a certificate, by the algorithm that it was signed with. None where the RFC leaves open which that is (Ed25519), and for
/// algorithms that rustls takes no certificate by.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match signature_algorithm(certificate).ok()? {
        RSA_SHA256 | ECDSA_SHA256 => Sha256::digest(certificate).to_vec(),
        RSA_SHA384 | ECDSA_SHA384 => Sha384::digest(certificate).to_vec(),
        RSA_SHA512 | ECDSA_SHA512 => Sha512::digest(certificate).to_vec(),
        _ => return None,
    })
}

/// The object identifier in the second member of a certificate. The first is what was signed.
fn signature_algorithm(certificate: &[u8]) -> der::Result<ObjectIdentifier> {
    let mut members = SliceReader::new(AnyRef::from_der(certificate)?.value())?;
    AnyRef::decode(&mut members)?;
    let algorithm = AnyRef::decode(&mut members)?;
    ObjectIdentifier::decode(&mut SliceReader::new(algorithm.value())?)
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
