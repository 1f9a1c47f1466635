//! The manifest of an index artifact: refused, or its layers come back from writing it and reading that. The subject is
//! taken from the manifest itself.
#![no_main]

use xebec_artifact::artifact::Artifact;
use xebec_format::digest::Digest;
use xebec_oci::Manifest;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::parse(bytes, None) else {
        return;
    };
    let Manifest::Image(image) = &manifest else {
        assert!(Artifact::decode(manifest, Digest::of(b"")).is_err());
        return;
    };
    let Some(subject) = image.subject.clone() else {
        assert!(Artifact::decode(manifest, Digest::of(b"")).is_err());
        return;
    };
    let Ok(artifact) = Artifact::decode(manifest, subject.digest) else {
        return;
    };
    let order: Vec<Digest> = artifact.layers.keys().copied().collect();
    let digest = subject.digest;
    let written = Manifest::Image(Box::new(artifact.encode(subject, &order)));
    match Artifact::decode(written, digest) {
        Ok(again) => assert_eq!(again, artifact),
        Err(error) => panic!("not read again: {error}"),
    }
});
