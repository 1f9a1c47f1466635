//! The htpasswd file: a user and a password's hash on each line, `name:hash`, as Apache's program of that name writes it.
//!
//! Hashes are bcrypt (`$2y$`, `$2b$`, `$2a$`) or argon2 (`$argon2id$`, `$argon2i$`, `$argon2d$`). MD5, SHA-1 and `crypt` are
//! refused by line: they fall to anybody who sees the file. This module is text only; [`Logins`](super::login::Logins) reads.

use crate::password::{Hash, HashError};

/// The largest file that is read, in bytes: some fifty thousand users.
pub const MAX_FILE: u64 = 8 << 20;

/// The longest name of a user, in bytes.
pub const MAX_NAME: usize = 128;

/// The name by which a token of an OIDC issuer is given instead of a password; no user may have it.
pub const OIDC_USER: &str = "oidc";

/// Why a file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HtpasswdError {
    /// A line without a colon.
    #[error("line {0} is not NAME:HASH; `xebec-registry user add` writes such lines")]
    NotAPair(usize),
    /// A name that cannot be one.
    #[error("line {line}: {cause}")]
    Name {
        /// The line, from 1 on.
        line: usize,
        /// The fault of the name.
        cause: NameError,
    },
    /// A user twice.
    #[error("line {0}: the user stands in an earlier line too; remove one of them")]
    Twice(usize),
    /// A hash that is not one.
    #[error("line {line}: {cause}")]
    Hash {
        /// The line, from 1 on.
        line: usize,
        /// The fault of the hash.
        cause: HashError,
    },
}

/// Why a text cannot be the name of a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, too long, or with a character that headers or the file part by.
    #[error(
        "a user's name has 1 to {MAX_NAME} printable characters, without blanks, colons, commas, quotation marks and backslashes"
    )]
    Malformed,
    /// Tokens of OIDC issuers are given by it.
    #[error(
        "{OIDC_USER:?} and \"<token>\" are how clients give a token instead of a password; choose another name"
    )]
    Reserved,
}

/// Whether `name` can be a user's.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let sound = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, ':' | ',' | '"' | '\\' | '#');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(sound) {
        return Err(NameError::Malformed);
    }
    if name == OIDC_USER || name == "<token>" {
        return Err(NameError::Reserved);
    }
    Ok(())
}

/// A user of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password's hash.
    pub hash: Hash,
}

/// The users of a file, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Htpasswd {
    users: Vec<User>,
}

impl Htpasswd {
    /// Reads a file's text. Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// The first line that is not sound. A file is used as a whole or not at all.
    pub fn parse(text: &str) -> Result<Self, HtpasswdError> {
        let mut users = Vec::new();
        let mut names = std::collections::HashSet::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim_end();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let (name, hash) = content.split_once(':').ok_or(HtpasswdError::NotAPair(line))?;
            check_name(name).map_err(|cause| HtpasswdError::Name { line, cause })?;
            let hash = Hash::parse(hash).map_err(|cause| HtpasswdError::Hash { line, cause })?;
            if !names.insert(name) {
                return Err(HtpasswdError::Twice(line));
            }
            users.push(User {
                name: name.to_owned(),
                hash,
            });
        }
        Ok(Self { users })
    }

    /// The users, in the file's order.
    pub fn users(&self) -> &[User] {
        &self.users
    }
}

/// The text with this user's line added, or replaced where it stands. All other lines stay as they are, comments too.
pub fn with_user(text: &str, name: &str, hash: &Hash) -> String {
    let line = format!("{name}:{hash}");
    let mut replaced = false;
    let mut lines: Vec<&str> = Vec::new();
    for old in text.lines() {
        if !is_of(old, name) {
            lines.push(old);
        } else if !replaced {
            replaced = true;
            lines.push(&line);
        }
    }
    if !replaced {
        lines.push(&line);
    }
    joined(&lines)
}

/// The text without this user's line; nothing if there is none.
pub fn without_user(text: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !is_of(line, name)).collect();
    (lines.len() < text.lines().count()).then(|| joined(&lines))
}

fn is_of(line: &str, name: &str) -> bool {
    line.split_once(':').is_some_and(|(user, _)| user == name)
}

fn joined(lines: &[&str]) -> String {
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}
