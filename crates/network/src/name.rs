//! Names of networks and of attachments.

use std::io;

use xebec_kernel::random::random_name;

use crate::NetworkError;

/// The network that a container gets which publishes ports and names no network. It is made at first use.
pub const DEFAULT_NETWORK: &str = "bridge";

/// Networks that are no files: the host's own, and none.
const RESERVED: [&str; 4] = ["host", "none", "container", "default"];

/// Longest name of a network.
const NAME_LIMIT: usize = 64;

/// Bytes of an attachment's random suffix.
const RANDOM_BYTES: usize = 6;

/// Whether this can name a network. Such a name is safe as a file name.
pub fn is_network_name(name: &str) -> bool {
    name.len() <= NAME_LIMIT
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Refuses what cannot name a network of the user's.
pub(crate) fn check(name: &str) -> Result<(), NetworkError> {
    match () {
        () if RESERVED.contains(&name) => Err(NetworkError::Reserved(name.to_owned())),
        () if !is_network_name(name) => Err(NetworkError::Name(name.to_owned())),
        () => Ok(()),
    }
}

/// A name for an attachment of a container, which no other has: plugins know the container by it, and files
/// and firewall rules of an earlier container of the same name are not mistaken for its own.
///
/// # Errors
/// If the kernel gives no random bytes.
pub fn new_attachment_id(container: &str) -> io::Result<String> {
    Ok(format!("{container}-{}", random_name(RANDOM_BYTES)?))
}

/// Whether this is a name that [`new_attachment_id`] gives, and so safe as a file name.
pub(crate) fn is_attachment_id(id: &str) -> bool {
    id.rsplit_once('-').is_some_and(|(container, suffix)| {
        is_network_name(container)
            && suffix.len() == 2 * RANDOM_BYTES
            && suffix
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_file_names() {
        for good in ["bridge", "web-1", "A.b_c"] {
            assert!(check(good).is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", ".", "..", "-a", "a/b", "a b", "é", "a:b", &long] {
            assert!(matches!(check(bad), Err(NetworkError::Name(_))), "{bad}");
        }
        for reserved in RESERVED {
            assert!(
                matches!(check(reserved), Err(NetworkError::Reserved(_))),
                "{reserved}"
            );
        }
    }

    #[test]
    fn attachments_have_names_of_their_own() {
        let (one, two) = (
            new_attachment_id("web").unwrap_or_default(),
            new_attachment_id("web").unwrap_or_default(),
        );
        assert!(is_attachment_id(&one) && one != two && one.starts_with("web-"));
        for bad in [
            "web",
            "../web-0123456789ab",
            "web-0123456789AB",
            "web-0",
            "-0123456789ab",
        ] {
            assert!(!is_attachment_id(bad), "{bad}");
        }
    }
}
