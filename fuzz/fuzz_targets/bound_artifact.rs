//! An image index that may bind an artifact: what is bound is named in it; binding another artifact over it replaces the
//! first, or says why not.
#![no_main]

use xebec_format::digest::Digest;
use xebec_trust::{BoundArtifact, Original, bind, bound_artifact};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let manifest = Digest::from_bytes([0x11; 32]);
    if let Ok(Some((bound, _))) = bound_artifact(bytes, manifest) {
        assert_eq!(bound.manifest, manifest);
        let text = String::from_utf8_lossy(bytes);
        assert!(
            text.contains("11111111") || text.contains("\\u00"),
            "bound to what is not named"
        );
    }
    let other = BoundArtifact {
        manifest,
        artifact: Digest::from_bytes([0x33; 32]),
        artifact_size: 3,
    };
    if let Ok(rebound) = bind(&Original::ImageIndex(bytes), &[other]) {
        match bound_artifact(&rebound, manifest) {
            Ok(Some((bound, _))) => assert_eq!(bound, other),
            otherwise => panic!("bound {other:?} and read {otherwise:?}"),
        }
        let again = bind(&Original::ImageIndex(&rebound), &[other]).ok();
        assert_eq!(again, Some(rebound), "binding twice changes nothing");
    }
});
