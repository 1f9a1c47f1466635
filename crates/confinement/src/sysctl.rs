//! Settings of the kernel that a container has for itself: `--sysctl net.core.somaxconn=1024`.

use std::str::FromStr;

use crate::error::ConfinementError;

/// A setting of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// Its name, with dots.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Settings of the IPC namespace; docker's list.
const OF_IPC: [&str; 9] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "fs.mqueue.",
];

impl FromStr for Sysctl {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        let shape = || wrong(text, "write it as NAME=VALUE");
        let (name, value) = text.split_once('=').ok_or_else(shape)?;
        let name = name.trim().replace('/', ".");
        let is_name = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        if !name.split('.').all(is_name) {
            return Err(wrong(text, "that is no name of a setting"));
        }
        let sysctl = Self {
            name,
            value: value.to_owned(),
        };
        match sysctl.is_of_network() || sysctl.is_of_ipc() {
            true => Ok(sysctl),
            false => Err(wrong(
                text,
                "the whole host has it; set it there (sysctl -w). Containers have their own net.*, kernel.msg*, kernel.sem, \
                 kernel.shm* and fs.mqueue.*",
            )),
        }
    }
}

fn wrong(sysctl: &str, reason: &'static str) -> ConfinementError {
    ConfinementError::Sysctl {
        sysctl: sysctl.to_owned(),
        reason,
    }
}

impl Sysctl {
    fn is_of_network(&self) -> bool {
        self.name.starts_with("net.")
    }

    fn is_of_ipc(&self) -> bool {
        OF_IPC.iter().any(|known| match known.ends_with('.') {
            true => self.name.starts_with(known),
            false => self.name == *known,
        })
    }

    /// Refuses a setting that would be the host's.
    pub(crate) fn check(
        &self,
        is_on_hosts_network: bool,
        is_on_hosts_ipc: bool,
    ) -> Result<(), ConfinementError> {
        if self.is_of_network() && is_on_hosts_network {
            let reason =
                "the container is on the host's network, so the host would get it; choose another --network";
            return Err(wrong(&self.name, reason));
        }
        if self.is_of_ipc() && is_on_hosts_ipc {
            return Err(wrong(
                &self.name,
                "with --ipc host the host would get it; leave one of both out",
            ));
        }
        Ok(())
    }
}
