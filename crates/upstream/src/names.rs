//! Which repository here is which one there. Pure.

use std::borrow::Cow;

/// The part of a repository's name after `prefix`, if it has that prefix.
pub(super) fn below<'a>(prefix: &str, name: &'a str) -> Option<&'a str> {
    if prefix.is_empty() {
        return Some(name);
    }
    name.strip_prefix(prefix)?.strip_prefix('/')
}

/// The path of a request as this server knows it, of one that was sent as to a mirror: `/v2/NAME/…?ns=REGISTRY`, as containerd and
/// Xebec do, or `/PREFIX/v2/NAME/…`, as clients do whose mirrors are addresses with a path. `None`: it is not to be changed.
/// `prefix_of` gives the prefix of the upstream that is a registry, `is_prefix` tells whether one has this prefix.
pub(super) fn as_here(
    path: &str,
    query: &str,
    prefix_of: impl Fn(&str) -> Option<String>,
    is_prefix: impl Fn(&str) -> bool,
) -> Option<String> {
    if let Some(rest) = path.strip_prefix("/v2/") {
        let namespace = query.split('&').find_map(|pair| pair.strip_prefix("ns="))?;
        let prefix = prefix_of(&decoded(namespace)?).filter(|prefix| !prefix.is_empty())?;
        return (!rest.is_empty()).then(|| format!("/v2/{prefix}/{rest}"));
    }
    let at = path.find("/v2/")?;
    let prefix = path.get(1..at)?;
    let rest = path.get(at + "/v2/".len()..)?;
    match (is_prefix(prefix), rest) {
        (true, "") => Some("/v2/".to_owned()),
        (true, rest) => Some(format!("/v2/{prefix}/{rest}")),
        (false, _) => None,
    }
}

/// A host and port, of which a query encodes the colon and brackets.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text.into());
    }
    let mut decoded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let byte = u8::from_str_radix(after.get(..2)?, 16).ok()?;
        decoded.push(char::from(byte));
        rest = after.get(2..)?;
    }
    decoded.push_str(rest);
    Some(decoded.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_slash() {
        assert_eq!(
            below("docker.io", "docker.io/library/nginx"),
            Some("library/nginx")
        );
        assert_eq!(below("docker", "docker.io/library/nginx"), None);
        assert_eq!(below("docker.io", "docker.io"), None);
        assert_eq!(below("", "library/nginx"), Some("library/nginx"));
    }

    #[test]
    fn requests_to_a_mirror_are_understood() {
        let here = |path: &str, query: &str| {
            let prefix_of = |registry: &str| match registry {
                "docker.io" => Some("hub".to_owned()),
                "r.lan:5000" => Some("lan".to_owned()),
                "all.lan" => Some(String::new()),
                _ => None,
            };
            as_here(path, query, prefix_of, |prefix| {
                prefix == "hub" || prefix == "a/b"
            })
        };
        let manifest = "/v2/library/nginx/manifests/latest";
        let hub = Some("/v2/hub/library/nginx/manifests/latest".to_owned());
        assert_eq!(here(manifest, "ns=docker.io"), hub);
        assert_eq!(
            here(manifest, "x=1&ns=r.lan%3A5000"),
            Some(manifest.replace("/v2/", "/v2/lan/"))
        );
        assert_eq!(here("/hub/v2/library/nginx/manifests/latest", ""), hub);
        assert_eq!(
            here("/a/b/v2/x/tags/list", ""),
            Some("/v2/a/b/x/tags/list".to_owned())
        );
        assert_eq!(here("/hub/v2/", ""), Some("/v2/".to_owned()));
        for (path, query) in [
            (manifest, ""),
            (manifest, "ns=other.io"),
            (manifest, "ns=all.lan"),
            (manifest, "ns=%zz"),
            ("/v2/", "ns=docker.io"),
            ("/other/v2/x/tags/list", ""),
            ("/metrics", "ns=docker.io"),
        ] {
            assert_eq!(here(path, query), None, "{path}?{query}");
        }
    }
}
