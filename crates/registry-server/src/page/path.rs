//! The page that a path and its query ask for.

use std::borrow::Cow;

/// Longest search text that is looked at.
const MAX_SEARCH: usize = 255;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/`: the repositories whose names contain `search`, after the name `after`.
    Repositories {
        /// Part of a name; empty for all.
        search: String,
        /// Last name of the page before, or a place that does not tell it.
        after: Option<String>,
    },
    /// `/repositories/NAME`: the tags of a repository.
    Repository {
        /// Its name, not checked.
        name: String,
        /// Part of a tag; empty for all.
        search: String,
        /// Last tag of the page before.
        after: Option<String>,
    },
    /// `/repositories/NAME@DIGEST`: an image, an index of images or an artifact.
    Image {
        /// The repository's name, not checked.
        name: String,
        /// The manifest's digest, not checked.
        digest: String,
    },
    /// `/activity`: recent errors and slow requests.
    Activity,
    /// `/space`: the room that everything takes up.
    Space,
    /// `/login`: asks for a name and a password, and leads to `/`.
    Login,
    /// `/page.svg`
    Icon,
    /// `/page.css`
    Style,
    /// `/page.js`
    Script,
}

impl Page {
    /// The page that a request's path and query ask for. `None` for paths that are no page.
    pub fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        let query = query.unwrap_or_default();
        match path {
            "/" => Some(Self::Repositories {
                search: search(query),
                after: parameter(query, "after"),
            }),
            "/activity" => Some(Self::Activity),
            "/space" => Some(Self::Space),
            "/login" => Some(Self::Login),
            "/page.svg" => Some(Self::Icon),
            "/page.css" => Some(Self::Style),
            "/page.js" => Some(Self::Script),
            _ => {
                let rest = decoded(path.strip_prefix("/repositories/")?)?;
                Some(match rest.split_once('@') {
                    Some((name, digest)) => Self::Image {
                        name: name.to_owned(),
                        digest: digest.to_owned(),
                    },
                    None => Self::Repository {
                        name: rest.into_owned(),
                        search: search(query),
                        after: parameter(query, "after"),
                    },
                })
            }
        }
    }

    /// The repository that it is about, not checked.
    pub fn repository(&self) -> Option<&str> {
        match self {
            Self::Repository { name, .. } | Self::Image { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// The text that is searched for, as far as it is looked at.
fn search(query: &str) -> String {
    let text = parameter(query, "search").unwrap_or_default();
    text.trim().chars().take(MAX_SEARCH).collect()
}

/// The value of a query's parameter, decoded; the first where it is given twice.
fn parameter(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (found, value) = pair.split_once('=')?;
        let value = value.replace('+', " ");
        (found == name).then(|| decoded(&value).map(Cow::into_owned))?
    })
}

/// Text with its `%XX` decoded. `None` when it is not UTF-8 then, or a `%` begins nothing.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let digits = part
            .get(..2)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Text as it may stand in a query's value.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_name_pages() {
        let page = |path: &str, query: &str| Page::parse(path, Some(query));
        assert_eq!(
            page("/", "search=a%2Fb+c&after=x"),
            Some(Page::Repositories {
                search: "a/b c".to_owned(),
                after: Some("x".to_owned()),
            })
        );
        assert_eq!(
            page("/repositories/team/app@sha256%3Aab", ""),
            Some(Page::Image {
                name: "team/app".to_owned(),
                digest: "sha256:ab".to_owned(),
            })
        );
        assert_eq!(
            page("/repositories/team/app", "search=+1&after=1.0"),
            Some(Page::Repository {
                name: "team/app".to_owned(),
                search: "1".to_owned(),
                after: Some("1.0".to_owned()),
            })
        );
        for path in ["/repositories/team/app@sha256%3Aab", "/repositories/team/app"] {
            let found = page(path, "");
            assert_eq!(found.as_ref().and_then(Page::repository), Some("team/app"));
        }
        assert_eq!(Page::Activity.repository(), None);
        assert_eq!(page("/space", ""), Some(Page::Space));
        for path in [
            "/v2/",
            "/repositories",
            "/nothing",
            "/repositories/%zz",
            "/repositories/%ff",
        ] {
            assert_eq!(page(path, ""), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(path in ".{0,40}", query in ".{0,40}") {
            let _ = Page::parse(&path, Some(&query));
        }

        #[test]
        fn what_is_encoded_is_decoded(text in ".{0,40}") {
            let query = format!("search={}", encoded(&text));
            let wanted = Page::Repositories { search: text.trim().to_owned(), after: None };
            prop_assert_eq!(Page::parse("/", Some(&query)), Some(wanted));
        }
    }
}
