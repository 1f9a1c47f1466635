//! Messages of the native service: the request of a start, as a registry reads it, and the head of its answer, as a host does. What is
//! read says the same once written, and keeps the limits.
#![no_main]

use xebec_native::start_answer::{Head, MAX_ANSWERS, PREFIX, head_size};
use xebec_native::start_request::{MAX_LAYERS, StartRequest};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = StartRequest::decode(bytes) {
        assert!(request.held.len() <= MAX_LAYERS);
        assert_eq!(
            StartRequest::decode(&request.clone().encode()).ok(),
            Some(request)
        );
    }
    if let Ok(head) = Head::decode(bytes) {
        assert!(head.answers.len() <= MAX_ANSWERS);
        let Ok(written) = head.encode() else { return };
        assert_eq!(Head::decode(&written[PREFIX..]).ok().as_ref(), Some(&head));
    }
    if let Some(prefix) = bytes.first_chunk() {
        let _ = head_size(*prefix);
    }
});
