//! Texts of clients and administrators about rights: scopes, the header Authorization, forms, htpasswd files, patterns. A text that is
//! read says the same once printed, and stays within the limits.
#![no_main]

use xebec_access::credentials::Credentials;
use xebec_access::endpoint::TokenRequest;
use xebec_access::htpasswd::{Htpasswd, check_name};
use xebec_access::scope::{AccessEntry, MAX_SCOPES, Scope};
use xebec_policy::mode::Mode;
use xebec_settings::pattern::{RepositoryPattern, TagPattern};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Credentials::Bearer(token)) = Credentials::parse(bytes) {
        assert!(!token.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"'));
    }
    let _ = TokenRequest::parse(bytes);
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if let Ok(scopes) = Scope::parse_all([text]) {
        assert!(scopes.len() <= MAX_SCOPES);
        for scope in scopes.iter().filter(|scope| **scope != Scope::Unknown) {
            assert_eq!(Scope::parse(&scope.to_string()).as_ref(), Ok(scope));
            if let Some(entry) = AccessEntry::of(scope) {
                assert_eq!(&entry.scope(), scope);
            }
        }
    }
    if let Ok(file) = Htpasswd::parse(text) {
        assert!(file.users().iter().all(|user| check_name(&user.name).is_ok()));
    }
    if let Ok(pattern) = RepositoryPattern::parse(text) {
        assert_eq!(
            RepositoryPattern::parse(&pattern.to_string()).as_ref(),
            Ok(&pattern)
        );
        assert!(text.contains('*') || pattern.covers(text));
    }
    let _ = TagPattern::parse(text);
    let _ = Mode::parse(text);
});
