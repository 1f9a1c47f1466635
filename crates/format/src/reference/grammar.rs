//! The grammar of the parts of a reference: hosts, paths and tags.

use super::error::ReferenceError;

/// Longest tag, in bytes (distribution spec, "Pulling manifests").
const MAX_TAG_LENGTH: usize = 128;

/// Whether a first component can only be a host (distribution's `splitDockerDomain`).
pub(super) fn is_host(component: &str) -> bool {
    component == "localhost"
        || component.contains(['.', ':', '['])
        || component.bytes().any(|byte| byte.is_ascii_uppercase())
}

pub(super) fn check_registry(registry: &str) -> Result<(), ReferenceError> {
    let refuse = || ReferenceError::Registry(registry.to_owned());
    let (host, port) = split_host_port(registry).ok_or_else(refuse)?;
    if let Some(port) = port {
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || port.parse::<u16>().is_err() {
            return Err(refuse());
        }
    }
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').ok_or_else(refuse)?;
        return address
            .parse::<std::net::Ipv6Addr>()
            .map(|_| ())
            .map_err(|_| refuse());
    }
    let label_is_fine = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if host.split('.').all(label_is_fine) {
        Ok(())
    } else {
        Err(refuse())
    }
}

/// Splits `host[:port]`; an IPv6 address is in brackets, which stay part of the host.
pub fn split_host_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if authority.starts_with('[') {
        let end = authority.find(']')? + 1;
        let (host, rest) = authority.split_at_checked(end)?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    Some(match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    })
}

pub(super) fn check_name(name: &str) -> Result<(), ReferenceError> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(ReferenceError::UpperCase(name.to_owned()));
    }
    if name.split('/').all(is_path_component) {
        Ok(())
    } else {
        Err(ReferenceError::Repository(name.to_owned()))
    }
}

/// `[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*` of the distribution specification.
fn is_path_component(component: &str) -> bool {
    let mut separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    // Between two letters there is an empty separator; the first and the last must be empty too.
    let edges_are_plain = |component: &str| {
        let plain = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        plain(component.bytes().next()) && plain(component.bytes().last())
    };
    edges_are_plain(component)
        && separators.all(|run| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-'))
}

pub(super) fn check_tag(tag: &str) -> Result<(), ReferenceError> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fine = tag.len() <= MAX_TAG_LENGTH
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || byte == b'.' || byte == b'-');
    if fine {
        Ok(())
    } else {
        Err(ReferenceError::Tag(tag.to_owned()))
    }
}
