//! The capabilities of a container (`capabilities(7)`).
//!
//! The rules of `--cap-add` and `--cap-drop` are docker's. `ALL` means every capability. With `--cap-add
//! ALL`, those that are dropped are taken away. With `--cap-drop ALL`, only those that are added are left.
//! Otherwise the dropped ones are taken from the default ones, and the added ones are then added.

use std::fmt;
use std::str::FromStr;

use crate::error::ConfinementError;

/// The names of all capabilities by their numbers (`linux/capability.h`), without `CAP_`.
pub const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The default capabilities of a container; docker's list.
const DEFAULT: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// A default capability that a container has only in a network of its own: on the host's network it would let
/// the container read and forge the host's packets.
const OWN_NETWORK: &str = "NET_RAW";

/// A value of `--cap-add` and `--cap-drop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Every capability that this process has itself.
    All,
    /// One capability, by its number.
    One(u8),
}

/// As in docker: in upper or lower case, with `CAP_` or without.
impl FromStr for Capability {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        let name = text.to_ascii_uppercase();
        if name == "ALL" {
            return Ok(Self::All);
        }
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        let number = NAMES.iter().position(|known| *known == name);
        let number = number.and_then(|number| u8::try_from(number).ok());
        number
            .map(Self::One)
            .ok_or_else(|| ConfinementError::Capability(text.to_owned()))
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Every capability.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);

    /// The capabilities of this process, which it can give to a container.
    pub(crate) fn held() -> Self {
        let held = rustix::thread::capabilities(None).map_or(0, |sets| sets.permitted.bits());
        Self(held & Self::ALL.0)
    }

    /// The capabilities of a container, which is on the host's network or not. `held` are those of this process.
    pub fn of(added: &[Capability], dropped: &[Capability], on_host: bool, held: Self) -> Self {
        let set = |list: &[Capability]| {
            list.iter().fold(Self::default(), |set, one| match one {
                Capability::All => set,
                Capability::One(number) => Self(set.0 | 1 << number),
            })
        };
        let (with, without) = (set(added), set(dropped));
        if added.contains(&Capability::All) {
            return Self(held.0 & !without.0);
        }
        if dropped.contains(&Capability::All) {
            return with;
        }
        Self((Self::default_of(on_host).0 & !without.0) | with.0)
    }

    fn default_of(on_host: bool) -> Self {
        let names = DEFAULT.iter().filter(|name| !on_host || **name != OWN_NETWORK);
        names.fold(Self::default(), |set, name| Self(set.0 | bit(name)))
    }

    /// The capabilities of these names, as [`Capabilities::names`] gives them. Unknown ones are ignored.
    pub(crate) fn from_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let bits = names.map(|name| bit(name.strip_prefix("CAP_").unwrap_or(name)));
        Self(bits.fold(0, |set, bit| set | bit))
    }

    /// Whether the set has the capability of this name (without `CAP_`).
    pub(crate) fn contains(self, name: &str) -> bool {
        self.0 & bit(name) != 0
    }

    /// In the form of the runtime's configuration.
    pub fn names(self) -> Vec<String> {
        let has = |number: &usize| self.0 & (1 << number) != 0;
        let names = NAMES.iter().enumerate().filter(|(number, _)| has(number));
        names.map(|(_, name)| format!("CAP_{name}")).collect()
    }
}

fn bit(name: &str) -> u64 {
    let number = NAMES.iter().position(|known| *known == name);
    number.map_or(0, |number| 1 << number)
}

impl fmt::Display for Capability {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => to.write_str("ALL"),
            Self::One(number) => to.write_str(NAMES.get(usize::from(*number)).unwrap_or(&"?")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(added: &str, dropped: &str, on_host: bool) -> Capabilities {
        let list = |text: &str| -> Vec<Capability> {
            text.split_whitespace()
                .map(|word| word.parse().unwrap())
                .collect()
        };
        Capabilities::of(&list(added), &list(dropped), on_host, Capabilities::ALL)
    }

    #[test]
    fn added_and_dropped_capabilities_follow_dockers_rules() {
        let usual = of("", "", false);
        assert_eq!(usual.names().len(), 14);
        assert!(usual.contains("NET_RAW") && !usual.contains("SYS_ADMIN"));
        let host = of("", "", true);
        assert!(!host.contains("NET_RAW") && host.contains("NET_BIND_SERVICE"));
        assert!(of("net_raw", "", true).contains("NET_RAW"));
        assert!(of("CAP_SYS_ADMIN", "", true).contains("SYS_ADMIN"));
        assert!(!of("", "cap_chown", true).contains("CHOWN"));
        assert!(
            of("CHOWN", "CHOWN", true).contains("CHOWN"),
            "what is added stays"
        );
        assert_eq!(of("KILL", "ALL", true).names(), ["CAP_KILL"]);
        assert_eq!(of("", "ALL", true), Capabilities::default());
        let most = of("ALL", "SYS_ADMIN", true);
        assert!(!most.contains("SYS_ADMIN") && most.contains("SYS_MODULE"));
        assert_eq!(of("ALL", "ALL", true), Capabilities::ALL);
    }

    #[test]
    fn a_container_gets_no_capability_that_this_process_lacks() {
        let held = Capabilities(0b111);
        let all = Capabilities::of(&[Capability::All], &[], true, held);
        assert_eq!(all, held);
        let named = all.names();
        assert_eq!(Capabilities::from_names(named.iter().map(String::as_str)), held);
    }

    #[test]
    fn an_unknown_name_is_in_the_error() {
        let error = "NET_RAWW".parse::<Capability>().unwrap_err().to_string();
        assert!(error.contains("NET_RAWW"), "{error}");
        assert!("".parse::<Capability>().is_err());
    }

    #[test]
    fn numbers_are_the_kernels() {
        for (number, name) in [(0, "CHOWN"), (13, "NET_RAW"), (21, "SYS_ADMIN"), (39, "BPF")] {
            assert_eq!(name.parse::<Capability>().unwrap(), Capability::One(number));
        }
    }
}
