//! `Manifest::parse` of arbitrary bytes: an error, or something that, written again, is read as the same. The first byte
//! chooses the content type that the registry is said to have sent.
#![no_main]

use xebec_oci::{Manifest, Platform, media_type};

const CONTENT_TYPES: [Option<&str>; 6] = [
    None,
    Some("application/json; charset=utf-8"),
    Some(media_type::OCI_MANIFEST),
    Some(media_type::OCI_INDEX),
    Some(media_type::DOCKER_MANIFEST),
    Some(media_type::DOCKER_LIST),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let content_type = CONTENT_TYPES[usize::from(choice) % CONTENT_TYPES.len()];
    let Ok(manifest) = Manifest::parse(bytes, content_type) else {
        return;
    };
    let written = match &manifest {
        Manifest::Image(image) => {
            for layer in &image.layers {
                let _ = layer.embedded();
            }
            serde_json::to_vec(image)
        }
        Manifest::Index(index) => {
            let chosen = index.select(&Platform::linux("amd64"));
            assert!(chosen.is_none_or(|chosen| index.manifests.contains(chosen)));
            serde_json::to_vec(index)
        }
    };
    let written = written.unwrap_or_default();
    match Manifest::parse(&written, content_type) {
        Ok(again) => assert_eq!(again, manifest),
        Err(error) => panic!("not read again: {error}"),
    }
});
