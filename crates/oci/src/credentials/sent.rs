//! A login and where it is from, and what a message says of it.

use std::fmt;
use std::path::PathBuf;

use super::credential::Credential;

/// Credentials that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The credentials.
    pub credential: Credential,
    /// Where they were found, for people.
    pub from: String,
}

/// The login that a registry was sent, as a message says it. It has no secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SentLogin {
    /// It is not known: the registry did not say what it wants, or Xebec could not get the login.
    #[default]
    Unknown,
    /// None, since these files have none for it.
    Nothing {
        /// `host[:port]`.
        registry: String,
        /// The files that were asked, some of which need not exist.
        files: Vec<PathBuf>,
    },
    /// None, since what should have one is damaged; why, for people.
    Damaged(String),
    /// This one.
    Sent {
        /// The user that the login is of. Absent for a token, which does not say.
        user: Option<String>,
        /// Where it was found.
        from: String,
    },
}

impl SentLogin {
    /// The note of a login that was found.
    pub(crate) fn of(login: &Login) -> Self {
        let user = match &login.credential {
            Credential::Basic { username, .. } => Some(username.clone()),
            Credential::IdentityToken(_) | Credential::RegistryToken(_) => None,
        };
        Self::Sent {
            user,
            from: login.from.clone(),
        }
    }
}

impl fmt::Display for SentLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Nothing { files, .. } if files.is_empty() => f.write_str("; Xebec sent no login"),
            Self::Nothing { registry, files } => {
                let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                let files = files.join(" or ");
                write!(
                    f,
                    "; Xebec sent no login, as there is none for {registry} in {files}"
                )
            }
            Self::Damaged(reason) => write!(f, "; Xebec sent no login: {reason}"),
            Self::Sent {
                user: Some(user),
                from,
            } => write!(f, "; Xebec sent the login of {user:?} from {from}"),
            Self::Sent { user: None, from } => write!(f, "; Xebec sent a token from {from}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_said() {
        let secret = || "hunter2".to_owned();
        for (credential, said) in [
            (
                Credential::Basic {
                    username: "ann".to_owned(),
                    password: secret(),
                },
                "; Xebec sent the login of \"ann\" from /f",
            ),
            (
                Credential::IdentityToken(secret()),
                "; Xebec sent a token from /f",
            ),
        ] {
            let from = "/f".to_owned();
            assert_eq!(SentLogin::of(&Login { credential, from }).to_string(), said);
        }
        let nothing = SentLogin::Nothing {
            registry: "r.example".to_owned(),
            files: vec!["/a".into(), "/b".into()],
        };
        assert_eq!(
            nothing.to_string(),
            "; Xebec sent no login, as there is none for r.example in /a or /b"
        );
    }
}
