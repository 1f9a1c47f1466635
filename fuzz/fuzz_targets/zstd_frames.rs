//! Any bytes as zstd frames: they are refused, or each stretch of them comes back from its plain bytes, those before it, and its corrections. The first
//! byte says how long stretches and their history are, so that short inputs have several.
#![no_main]

use xebec_zstd_frames::describe::{Describer, Options};
use xebec_zstd_frames::restore::{history, restore};

/// Four bytes can make 128 KiB: one input must not take seconds.
const MOST_PLAIN: usize = 4 << 20;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&first, stream)) = input.split_first() else {
        return;
    };
    let options = Options {
        stretch: 64 << (first & 15),
        history: 64 << (first >> 4),
    };
    let mut plain = Vec::new();
    let length = std::cell::Cell::new(0);
    let mut stretches = Vec::new();
    let mut give = |stretch: xebec_zstd_frames::describe::Stretch<'_>| {
        plain.extend_from_slice(stretch.plain);
        length.set(plain.len());
        stretches.push((plain.len(), stretch.compressed, stretch.corrections));
    };
    let mut describer = Describer::new(options);
    for piece in stream.chunks(1024) {
        if describer.push(piece, &mut give).is_err() || length.get() > MOST_PLAIN {
            return;
        }
    }
    if describer.finish(&mut give).is_err() {
        return;
    }
    let (mut begin, mut place) = (0, 0);
    for (end, compressed, corrections) in stretches {
        let before = history(&corrections).unwrap_or_default();
        assert!(
            before <= begin && before <= options.history,
            "more history than there is"
        );
        let made = restore(&plain[begin - before..end], before, &corrections, compressed);
        assert!(
            made.is_ok_and(|made| made == stream[place..place + compressed]),
            "a stretch does not come back"
        );
        (begin, place) = (end, place + compressed);
    }
    assert_eq!(place, stream.len(), "bytes are missing");
});
