//! A filter of containerd, and snapshots to try it on: reading and matching are quick however hostile it is.
#![no_main]

use xebec_snapshotter::api::{Info, Kind};
use xebec_snapshotter::filters::Filters;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(filters) = Filters::parse(&[text]) else {
        return;
    };
    let labels = [
        ("n", "1"),
        ("containerd.io/snapshot.ref", "sha256:ab"),
        ("a.b", text),
    ];
    let info = Info {
        name: "k7".to_owned(),
        kind: Kind::Committed.into(),
        labels: labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Info::default()
    };
    let fits = filters.fit(&info);
    // One of several is enough.
    let several = Filters::parse(&[text, "kind==view", text]);
    assert_eq!(several.map(|several| several.fit(&info)).ok(), Some(fits));
    // A name that is quoted is found again, with any characters in it.
    let quoted: String = text.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect();
    let named = Filters::parse(&[format!("name==\"{quoted}\"")]);
    let info = Info {
        name: text.to_owned(),
        ..Info::default()
    };
    // Ten characters for each may be more than a filter may have.
    assert!(named.map_or(text.len() > 4096, |named| named.fit(&info)));
});
