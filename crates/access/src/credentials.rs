//! The header `Authorization`: what a client shows.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// The longest value of the header that is looked at, in bytes. Tokens of CI systems have a few thousand.
pub const MAX_HEADER: usize = 32 * 1024;

/// The credentials that a client shows.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password.
    Password {
        /// The name.
        name: String,
        /// The password.
        password: String,
    },
    /// A token.
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { name, .. } => write!(f, "the password of {name:?}"),
            Self::Bearer(_) => f.write_str("a token"),
        }
    }
}

/// Why a header is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Neither of the two schemes.
    #[error("the header Authorization is neither \"Basic …\" nor \"Bearer …\"; log in again")]
    Scheme,
    /// Not what the scheme says.
    #[error("the header Authorization is damaged; log in again")]
    Damaged,
    /// Longer than the limit.
    #[error("the header Authorization has more than {MAX_HEADER} bytes")]
    TooLong,
}

impl Credentials {
    /// Reads the header's value.
    ///
    /// # Errors
    /// See [`CredentialsError`].
    pub fn parse(value: &[u8]) -> Result<Self, CredentialsError> {
        if value.len() > MAX_HEADER {
            return Err(CredentialsError::TooLong);
        }
        let text = str::from_utf8(value).map_err(|_| CredentialsError::Damaged)?;
        let (scheme, rest) = text.split_once(' ').ok_or(CredentialsError::Scheme)?;
        let rest = rest.trim_matches(' ');
        if scheme.eq_ignore_ascii_case("bearer") {
            // The characters of RFC 6750, 2.1.
            let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
            if rest.is_empty() || !rest.bytes().all(sound) {
                return Err(CredentialsError::Damaged);
            }
            return Ok(Self::Bearer(rest.to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err(CredentialsError::Scheme);
        }
        let decoded = STANDARD
            .decode(rest)
            .or_else(|_| STANDARD_NO_PAD.decode(rest))
            .map_err(|_| CredentialsError::Damaged)?;
        let decoded = String::from_utf8(decoded).map_err(|_| CredentialsError::Damaged)?;
        let (name, password) = decoded.split_once(':').ok_or(CredentialsError::Damaged)?;
        Ok(Self::Password {
            name: name.to_owned(),
            password: password.to_owned(),
        })
    }
}
