//! Entry points for fuzz targets: each takes arbitrary bytes and panics only when a promise is broken.

use std::path::Path;
use std::time::SystemTime;

use reqwest::Url;
use tokio::time::Instant;

use crate::auth::tokens::Token;
use crate::client::tags::{offer, read_list};
use crate::credentials::entries::{DockerConfig, keys_of};
use crate::credentials::{Credential, helper, providers};
use crate::transport::headers::{content_range, next_link, redirect_life};
use crate::transport::http::error_message;

/// Longest text of a registry that a message shows, in characters: five tags with what is said around them.
const MAX_SHOWN: usize = 1000;

/// Messages of a registry or its token server, other than manifests and blobs. The bytes are tried in the place of each of them.
///
/// # Panics
/// When a message would have what a terminal acts on, or a header would have more than one line.
pub fn registry_answer(bytes: &[u8]) {
    is_one_line(&error_message(bytes));
    if let Ok(tags) = read_list(bytes) {
        is_one_line(&offer("1.2", tags, true));
    }
    if let Ok(token) = Token::parse(bytes, Instant::now()) {
        assert!(token.header.bytes().all(|byte| (b' '..0x7f).contains(&byte)));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for line in text.lines() {
        if let Some(range) = content_range(line) {
            assert!(range.start < range.end && range.size.is_none_or(|size| range.end <= size));
        }
        assert!(next_link(line).is_none_or(|url| line.contains(url)));
        if let Ok(url) = Url::parse(line) {
            let _ = redirect_life(&url, SystemTime::UNIX_EPOCH);
        }
    }
}

/// Logins, as a user's file, a helper and a provider of the kubelet say them.
///
/// # Panics
/// When a file that has no login gives one, one that can be read gives an error, or a helper's token is taken for a password.
pub fn logins(bytes: &[u8]) {
    let path = Path::new("/home/u/.docker/config.json");
    if let Ok(config) = DockerConfig::parse(path, bytes) {
        let usable = config.logins(path).ok();
        for registry in ["docker.io", "registry.example.com:5000"] {
            let found = config.credential(path, &keys_of(registry), "team/app");
            // One entry that cannot be read is named by both, and one that can be read is counted.
            assert!(found.is_ok() || usable.is_none());
            let has_login = matches!(found, Ok(Some(_)));
            assert!(!has_login || usable.is_none_or(|logins| logins > 0));
        }
    }
    if let Ok(Some(Credential::Basic { username, .. })) = helper::read_answer(bytes) {
        assert_ne!(username, "<token>");
    }
    if let Ok(Some(Credential::Basic { username, password })) =
        providers::read_answer(bytes, "registry.example.com/team/app")
    {
        assert!(!username.is_empty() || !password.is_empty());
    }
    let _ = providers::parse(bytes);
}

fn is_one_line(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(text.chars().count() <= MAX_SHOWN, "{text:?}");
}
