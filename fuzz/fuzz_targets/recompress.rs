//! A stream that is taken apart comes back as it was, whole and part by part, and so does its description; any other bytes are refused. The
//! first byte says what comes before the rest: nothing, or the head of a gzip member, so that the rest is a deflate stream.
#![no_main]

use xebec_recompress::{Description, Limits, Restorer, TakeApart};

const HEADS: [&[u8]; 4] = [
    b"",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
    b"\x1f\x8b\x08\x00\x00\x09\x6e\x88\x00\xff",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03",
];
/// Deflate streams grow a thousandfold: one input must not take seconds.
const LIMITS: Limits = Limits { plain: 4 << 20 };

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let mut stream = HEADS[usize::from(first) % HEADS.len()].to_vec();
    stream.extend_from_slice(rest);
    if first & 0x80 != 0 {
        // What follows the deflate stream of a member, wherever it ends.
        stream.extend([0; 8]);
    }
    let mut plain = Vec::new();
    let mut take_apart = TakeApart::new(LIMITS);
    for piece in stream.chunks(usize::from(first) * 16 + 1) {
        if take_apart
            .write(piece, &mut |bytes| plain.extend_from_slice(bytes))
            .is_err()
        {
            return;
        }
    }
    let Ok(description) = take_apart.finish(&mut |bytes| plain.extend_from_slice(bytes)) else {
        return;
    };
    let bytes = description.to_bytes();
    assert!(
        Description::from_bytes(&bytes).is_ok_and(|again| again == description),
        "the description does not come back"
    );

    let mut whole = Vec::new();
    let mut restorer = Restorer::new(&description);
    let done = plain
        .chunks(70_000)
        .all(|piece| restorer.write(piece, &mut whole).is_ok())
        && restorer.finish(&mut whole).is_ok();
    assert!(done && whole == stream, "the stream does not come back");
    for place in description.places() {
        let needs = &plain[place.needs.start as usize..place.needs.end as usize];
        let part = &stream[place.stream.start as usize..place.stream.end as usize];
        assert!(
            description.restore(&place, needs).is_ok_and(|made| made == part),
            "a part does not come back"
        );
    }
});
