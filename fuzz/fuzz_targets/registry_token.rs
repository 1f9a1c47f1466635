//! Tokens: whatever the bytes, nothing is taken that the fuzzer's key has not signed; sets of keys are read or refused.
#![no_main]

use xebec_access::jwk::{KeySet, MAX_KEYS};
use xebec_access::token::{Expected, Unverified, verify};

/// The key of RFC 8037, appendix A. Its private half is known to everybody, and not to this program.
const KEYS: &[u8] = br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a"}]}"#;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(keys) = KeySet::parse(bytes) {
        assert!((1..=MAX_KEYS).contains(&keys.keys().len()));
    }
    let (Ok(token), Ok(keys)) = (str::from_utf8(bytes), KeySet::parse(KEYS)) else {
        return;
    };
    let _ = Unverified::read(token);
    let expected = Expected {
        issuer: "i".to_owned(),
        audiences: vec!["a".to_owned()],
        leeway: u64::MAX,
    };
    assert!(verify(token, &keys, &expected).is_err());
});
