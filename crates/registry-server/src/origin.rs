//! Whether a request that changes something was made by the page of another site.
//!
//! A browser that has a password for this registry sends it with each request, also with those that another site's page has it make.
//! It says so in headers that no page can set. Clients of registries are no browsers and send none of them.

use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};
use hyper::http::request::Parts;

/// How browsers call a request of the site itself, or of the user's own hand.
const OWN: [&str; 2] = ["same-origin", "none"];

/// Whether a browser says that another site is behind the request. Browsers that leave out the word about the site, as they do without
/// TLS, name it.
pub(crate) fn is_of_another_site(parts: &Parts) -> bool {
    let headers = &parts.headers;
    if let Some(site) = text(headers, "sec-fetch-site") {
        return !OWN.contains(&site);
    }
    let Some(origin) = text(headers, ORIGIN.as_str()) else {
        return false;
    };
    let asked = parts.uri.authority().map(|authority| authority.as_str());
    let asked = asked.or_else(|| text(headers, HOST.as_str()));
    let named = origin.split_once("://").map(|(_, authority)| authority);
    named.is_none() || named != asked
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name)?;
    // A header that is no text does not come from a browser's page of this registry.
    Some(value.to_str().unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use hyper::Request;

    use super::*;

    fn is_refused(headers: &[(&str, &str)]) -> bool {
        let mut request = Request::post("/v2/a/blobs/uploads/").header("host", "registry:5000");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        is_of_another_site(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn clients_and_pages_of_this_site_pass_and_others_do_not() {
        assert!(!is_refused(&[]));
        assert!(!is_refused(&[("origin", "http://registry:5000")]));
        assert!(!is_refused(&[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://front")
        ]));
        assert!(is_refused(&[("sec-fetch-site", "cross-site")]));
        assert!(is_refused(&[("sec-fetch-site", "same-site")]));
        for origin in ["https://evil.example", "null", "http://registry:5001", ""] {
            assert!(is_refused(&[("origin", origin)]), "{origin}");
        }
    }
}
