//! Hashes of passwords: bcrypt and argon2. Pure computation; each verification takes tens of milliseconds on purpose, so that
//! callers do it on a thread that may block.

use std::fmt;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};

/// The longest password that is looked at, in bytes. A longer one is wrong.
pub const MAX_PASSWORD: usize = 1024;

/// The most rounds of bcrypt, as a power of two, that a line of the file may ask for: about four seconds of one processor.
const MAX_BCRYPT_COST: u32 = 16;

/// The most memory that a line of the file may ask for, in KiB.
const MAX_ARGON2_MEMORY: u32 = 256 * 1024;

/// The most passes over it.
const MAX_ARGON2_PASSES: u32 = 16;

/// The most lanes.
const MAX_ARGON2_LANES: u32 = 16;

/// Why a text is no hash of a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// An algorithm that does not protect passwords, or none.
    #[error(
        "the hash is neither bcrypt ($2y$…) nor argon2 ($argon2id$…); make it anew by `xebec-registry user add` or `htpasswd -B`"
    )]
    Unknown,
    /// Broken.
    #[error("the hash is damaged: {0}; make it anew by `xebec-registry user add`")]
    Damaged(String),
    /// More work than a request may cost.
    #[error(
        "the hash asks for more work than allowed (bcrypt up to cost {MAX_BCRYPT_COST}; argon2 up to 256 MiB and {MAX_ARGON2_PASSES} passes); make it anew by `xebec-registry user add`"
    )]
    TooExpensive,
    /// Empty or too long.
    #[error("a password has 1 to {MAX_PASSWORD} bytes")]
    Password,
}

/// The hash of a password, as it stands in the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bcrypt,
    Argon2,
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} hash", self.kind)
    }
}

impl Hash {
    /// Reads a hash.
    ///
    /// # Errors
    /// See [`HashError`].
    pub fn parse(text: &str) -> Result<Self, HashError> {
        let kind = if text.starts_with("$2") {
            check_bcrypt(text)?;
            Kind::Bcrypt
        } else if text.starts_with("$argon2") {
            check_argon2(text)?;
            Kind::Argon2
        } else {
            return Err(HashError::Unknown);
        };
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }

    /// A new hash of a password: argon2id with the parameters that its library recommends (OWASP's: 19 MiB, two passes).
    ///
    /// # Errors
    /// [`HashError::Password`] if it is empty or too long, [`HashError::Damaged`] if the system has no randomness.
    pub fn of(password: &str) -> Result<Self, HashError> {
        if password.is_empty() || password.len() > MAX_PASSWORD {
            return Err(HashError::Password);
        }
        let hash = Argon2::default()
            .hash_password(password.as_bytes())
            .map_err(|error| HashError::Damaged(error.to_string()))?;
        Self::parse(&hash.to_string())
    }

    /// Whether `password` is the one. Takes as long as the hash says, whatever the password.
    pub fn verify(&self, password: &str) -> bool {
        let length_is_sound = !password.is_empty() && password.len() <= MAX_PASSWORD;
        let password = if length_is_sound { password } else { "-" };
        let right = match self.kind {
            Kind::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
            Kind::Argon2 => PasswordHash::new(&self.text).is_ok_and(|hash| {
                Argon2::default()
                    .verify_password(password.as_bytes(), &hash)
                    .is_ok()
            }),
        };
        right && length_is_sound
    }

    /// The bytes by which a change of the hash is noticed.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

fn check_bcrypt(text: &str) -> Result<(), HashError> {
    let parts: bcrypt::HashParts = text
        .parse()
        .map_err(|error: bcrypt::BcryptError| HashError::Damaged(error.to_string()))?;
    if parts.get_cost() > MAX_BCRYPT_COST {
        return Err(HashError::TooExpensive);
    }
    Ok(())
}

fn check_argon2(text: &str) -> Result<(), HashError> {
    let damaged = |cause: &dyn fmt::Display| HashError::Damaged(cause.to_string());
    let hash = PasswordHash::new(text).map_err(|error| damaged(&error))?;
    argon2::Algorithm::try_from(hash.algorithm.as_str()).map_err(|error| damaged(&error))?;
    let parameters = argon2::Params::try_from(&hash).map_err(|error| damaged(&error))?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(HashError::Damaged("it has no salt or no result".to_owned()));
    }
    let within = parameters.m_cost() <= MAX_ARGON2_MEMORY
        && parameters.t_cost() <= MAX_ARGON2_PASSES
        && parameters.p_cost() <= MAX_ARGON2_LANES;
    if within {
        Ok(())
    } else {
        Err(HashError::TooExpensive)
    }
}
