//! Messages of a push to a registry of Xebec, as the registry reads them: a question, the head of a parcel, and a bitmap. What is read says
//! the same once written, and keeps the limits.
#![no_main]

use xebec_native::push::{Bitmap, MAX_CONTENTS, MAX_RECIPE, MAX_SOURCES, PREFIX, ParcelHead, Question};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(question) = Question::decode(bytes) {
        assert!(question.sources.len() <= MAX_SOURCES && question.contents.len() <= MAX_CONTENTS);
        let Ok(written) = question.encode() else { return };
        assert_eq!(Question::decode(&written).ok(), Some(question));
    }
    if let Ok(head) = ParcelHead::decode(bytes) {
        assert!(head.sources.len() <= MAX_SOURCES && head.recipe <= MAX_RECIPE);
        let Ok(written) = head.encode() else { return };
        assert_eq!(ParcelHead::decode(&written[PREFIX..]).ok(), Some(head));
    }
    if let Some((prefix, rest)) = bytes.split_first_chunk() {
        let _ = ParcelHead::size(*prefix);
        for length in [rest.len() * 8, (rest.len() * 8).saturating_sub(3)] {
            if let Ok(bitmap) = Bitmap::from_bytes(rest, length) {
                let mut again = Bitmap::new(length);
                (0..length)
                    .filter(|number| bitmap.has(*number))
                    .for_each(|number| again.set(number));
                assert_eq!(again, bitmap);
            }
        }
    }
});
