//! Headers and queries of requests, one a line: a part lies in its blob, a page is bounded, what is encoded is decoded to the same.
#![no_main]

use xebec_registry_server::request::{Accept, MAX_PAGE, Paging, Query, Wanted, percent_encode, upload_range};

libfuzzer_sys::fuzz_target!(|input: (&str, u64)| {
    let (text, size) = input;
    for line in text.lines() {
        if let Wanted::Part(part) = Wanted::parse(line, size) {
            assert!(part.start < part.end && part.end <= size, "{part:?} of {size}");
        }
        if let Some(range) = upload_range(line) {
            assert!(range.start < range.end);
        }
        if let Some(paging) = Query::parse(line).and_then(|query| Paging::of(&query)) {
            assert!(paging.count <= MAX_PAGE);
        }
    }
    let accept = Accept::parse(text.lines());
    assert!(!accept.shown().is_empty() || accept.takes("a/b"));
    let query = Query::parse(&format!("last={}", percent_encode(text))).expect("it is encoded");
    assert_eq!(query.get("last"), Some(text));
});
