//! `WWW-Authenticate`: which kind of proof a registry wants (RFC 9110, section 11; distribution's token spec).

/// The kind of proof that a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// A name and a password with each request.
    Basic,
    /// A token from an authorization server.
    Bearer {
        /// URL of that server.
        realm: String,
        /// How it knows the registry; may be absent.
        service: Option<String>,
        /// The rights that the request would have needed; may be absent.
        scope: Option<String>,
    },
}

/// Longest header that is looked at.
const MAX_CHALLENGE: usize = 8 << 10;

/// Reads the values of all `WWW-Authenticate` headers of an answer and takes the best kind that Xebec knows:
/// a token rather than a password.
pub fn parse_challenges<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Challenge> {
    let mut found = None;
    for value in values.into_iter().filter(|value| value.len() <= MAX_CHALLENGE) {
        for (scheme, parameters) in split_challenges(value) {
            let get = |name: &str| {
                parameters
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.clone())
            };
            if scheme.eq_ignore_ascii_case("bearer") {
                if let Some(realm) = get("realm") {
                    return Some(Challenge::Bearer {
                        realm,
                        service: get("service"),
                        scope: get("scope"),
                    });
                }
            } else if scheme.eq_ignore_ascii_case("basic") {
                found = Some(Challenge::Basic);
            }
        }
    }
    found
}

type Parameters = Vec<(String, String)>;

/// Splits `Scheme a=b, c="d", Other e=f` into schemes with their parameters.
fn split_challenges(text: &str) -> Vec<(String, Parameters)> {
    let mut challenges: Vec<(String, Parameters)> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let Some((word, after)) = rest.split_at_checked(end).filter(|(word, _)| !word.is_empty()) else {
            return challenges;
        };
        // `word =` is a parameter of the last scheme; any other word starts a new scheme.
        let Some(value) = after.trim_start_matches([' ', '\t']).strip_prefix('=') else {
            challenges.push((word.to_owned(), Vec::new()));
            rest = after;
            continue;
        };
        let (value, after) = take_value(value.trim_start_matches([' ', '\t']));
        if let Some((_, parameters)) = challenges.last_mut() {
            parameters.push((word.to_owned(), value));
        }
        rest = after;
    }
}

/// A token or a quoted string, and what follows it.
fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        let text = |value: Option<&str>| value.map(str::to_owned);
        Some(Challenge::Bearer {
            realm: realm.to_owned(),
            service: text(service),
            scope: text(scope),
        })
    }

    #[test]
    fn as_registries_send_them() {
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/nginx:pull""#;
        assert_eq!(
            parse_challenges([docker]),
            bearer(
                "https://auth.docker.io/token",
                Some("registry.docker.io"),
                Some("repository:library/nginx:pull")
            )
        );
        assert_eq!(parse_challenges([r#"Basic realm="x""#]), Some(Challenge::Basic));
        assert_eq!(parse_challenges(["basic"]), Some(Challenge::Basic));
        let both = r#"Basic realm="x, y", BEARER Realm = "https://a/\"t\"", error=invalid_token"#;
        assert_eq!(parse_challenges([both]), bearer("https://a/\"t\"", None, None));
        assert_eq!(
            parse_challenges(["Basic", "Bearer realm=r,service=s"]),
            bearer("r", Some("s"), None)
        );
        for none in [
            "",
            "Bearer",
            "Negotiate",
            "realm=x",
            "Bearer service=\"s\"",
            "=,=,=",
        ] {
            assert_eq!(parse_challenges([none]), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_ends(text in "\\PC{0,80}|[Ba-r=,\" \\\\]{0,60}") {
            let _ = parse_challenges([text.as_str()]);
        }

        #[test]
        fn quoted_values_survive(realm in "[ -~]{1,40}") {
            let escaped = realm.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("Bearer realm=\"{escaped}\",service=\"s\"");
            prop_assert_eq!(parse_challenges([header.as_str()]), bearer(&realm, Some("s"), None));
        }
    }
}
