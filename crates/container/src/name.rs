//! Names of containers and of hosts.

use std::io;

use xebec_kernel::random;

/// Longest name of a container, and of a host (`HOST_NAME_MAX`). A container's name is its host name by
/// default.
const NAME_LIMIT: usize = 64;

/// Hexadecimal digits of a random name: as many as docker shows.
pub(crate) const RANDOM_DIGITS: usize = 12;

/// Whether this can name a container. Such a name is safe as a file name, as the name of a control group, and
/// for both runtimes.
pub(crate) fn is_container_name(name: &str) -> bool {
    name.len() <= NAME_LIMIT
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Whether this can name a host.
pub(crate) fn is_host_name(name: &str) -> bool {
    (1..=NAME_LIMIT).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

/// A random name.
pub(crate) fn random_name() -> io::Result<String> {
    random::random_name(RANDOM_DIGITS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_names_are_safe_as_file_names() {
        for good in ["a", "web-1", "A.b_c-9", &"x".repeat(64)] {
            assert!(is_container_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "-a",
            "a/b",
            "../x",
            "a b",
            "a\0",
            "é",
            &"x".repeat(65),
        ] {
            assert!(!is_container_name(bad), "{bad}");
        }
    }

    #[test]
    fn random_names_are_names_and_differ() {
        let (one, two) = (
            random_name().unwrap_or_default(),
            random_name().unwrap_or_default(),
        );
        assert!(is_container_name(&one) && is_container_name(&two) && one != two);
    }
}
