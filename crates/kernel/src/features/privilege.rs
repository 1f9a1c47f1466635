//! Whether this process has the privilege that mounts and events take.

use rustix::thread::CapabilitySet;

use super::check::{Outcome, Trouble};
use crate::process;

/// The identity mapping of the host's own user namespace (user_namespaces(7)).
const WHOLE: [&str; 3] = ["0", "0", "4294967295"];

/// Fails without the capability, and with one that holds in a user namespace only.
pub(super) fn check() -> Result<(Outcome, String), Trouble> {
    if !process::has_capability(CapabilitySet::SYS_ADMIN) {
        let user = rustix::process::geteuid().as_raw();
        return Err(format!("user {user} has no CAP_SYS_ADMIN").into());
    }
    match std::fs::read_to_string("/proc/self/uid_map") {
        Ok(map) if !is_whole(&map) => {
            Err("CAP_SYS_ADMIN holds only in a user namespace, not on the host".into())
        }
        _ => Ok((Outcome::Good, "CAP_SYS_ADMIN".to_owned())),
    }
}

fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_is_told_from_the_host() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0       1000          1\n"));
        assert!(!is_whole("0 0 1000\n1000 100000 65536\n"));
    }
}
