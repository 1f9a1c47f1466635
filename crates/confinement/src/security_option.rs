//! Security options: `--security-opt seccomp=FILE`, `apparmor=PROFILE` and others.

use std::path::PathBuf;
use std::str::FromStr;

use crate::error::ConfinementError;

/// A security option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityOption {
    /// `seccomp=unconfined`: no filter of system calls.
    SeccompUnconfined,
    /// `seccomp=builtin`: the default filter.
    SeccompBuiltin,
    /// `seccomp=FILE`: a filter in docker's format.
    SeccompFile(PathBuf),
    /// `apparmor=unconfined`.
    AppArmorUnconfined,
    /// `apparmor=PROFILE`.
    AppArmor(String),
    /// `label=disable`: no SELinux label.
    LabelDisable,
    /// `label=user:…`, `role:…`, `type:…`, `level:…`: one part of the SELinux label.
    Label {
        /// The number of the part, 0 to 3 in this order.
        part: usize,
        /// The part's value.
        value: String,
    },
    /// `no-new-privileges`: setuid programs run with the privileges of the caller.
    NoNewPrivileges(bool),
    /// `systempaths=unconfined`: the container sees all of /proc and /sys.
    SystemPathsUnconfined,
}

/// The parts of a label, in their order.
const PARTS: [&str; 4] = ["user", "role", "type", "level"];

impl FromStr for SecurityOption {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        let wrong = |reason: &str| ConfinementError::SecurityOption {
            option: text.to_owned(),
            reason: reason.to_owned(),
        };
        let known = "use seccomp=unconfined|FILE, apparmor=unconfined|PROFILE, label=disable|user:U|role:R|type:T|level:L, \
                     no-new-privileges or systempaths=unconfined";
        // An older notation of docker has a colon in the place of the equals sign.
        let (name, value) = text.split_once(['=', ':']).unwrap_or((text, ""));
        Ok(match (name, value) {
            ("no-new-privileges", "" | "true") => Self::NoNewPrivileges(true),
            ("no-new-privileges", "false") => Self::NoNewPrivileges(false),
            ("no-new-privileges", _) => return Err(wrong("it is true or false")),
            ("seccomp", "unconfined") => Self::SeccompUnconfined,
            ("seccomp", "builtin") => Self::SeccompBuiltin,
            ("apparmor", "unconfined") => Self::AppArmorUnconfined,
            ("label", "disable") => Self::LabelDisable,
            ("systempaths", "unconfined") => Self::SystemPathsUnconfined,
            ("seccomp" | "apparmor" | "label" | "systempaths", "") => return Err(wrong("it needs a value")),
            ("seccomp", file) => Self::SeccompFile(file.into()),
            ("apparmor", profile) if is_word(profile) => Self::AppArmor(profile.to_owned()),
            ("label", label) => {
                let (part, value) = label.split_once(':').ok_or_else(|| wrong(known))?;
                let part = PARTS
                    .iter()
                    .position(|known| *known == part)
                    .ok_or_else(|| wrong(known))?;
                if !is_word(value) {
                    return Err(wrong("that cannot be part of a label"));
                }
                Self::Label {
                    part,
                    value: value.to_owned(),
                }
            }
            _ => return Err(wrong(known)),
        })
    }
}

/// Whether a label or a mount option can hold this.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| !c.is_whitespace() && !c.is_control() && c != '"')
}
