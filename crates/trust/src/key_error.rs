//! Why a key is of no use.

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// No block of PEM, or a damaged one.
    #[error("this is not a PEM file with a key")]
    Pem,
    /// A block of PEM with something else.
    #[error("this is a {found:?}, not a {wanted}")]
    Label {
        /// The label found.
        found: String,
        /// The label that it should have had.
        wanted: &'static str,
    },
    /// Another algorithm or curve, or damaged.
    #[error(
        "this is not an ECDSA key on P-256 (prime256v1), the only kind supported; make one with \
         `cosign generate-key-pair` or `openssl ecparam -name prime256v1 -genkey -noout`"
    )]
    Algorithm,
    /// PKCS#8 encryption, which takes a whole family of algorithms to read.
    #[error(
        "the key is encrypted in a form that Xebec does not read; convert it with \
         `cosign import-key-pair --key FILE` (encrypted) or `openssl ec -in FILE -out NEW` (plain)"
    )]
    Encrypted,
    /// Encrypted, and no password given.
    #[error("the key needs a password; set XEBEC_KEY_PASSWORD or COSIGN_PASSWORD")]
    NoPassword,
    /// Encrypted with another password, or damaged.
    #[error("the password is wrong, or the key file is damaged")]
    Password,
    /// The envelope of the encrypted key is damaged or asks for too much memory.
    #[error("the encrypted key is damaged: {0}")]
    Envelope(String),
}
