//! Any bytes as a description: refused, or read and written again as the same bytes; and restoring by it, of plain bytes that do not belong to it, ends
//! with an error or with no more bytes than it promises. The first two bytes are the length of the description, the plain bytes follow it.
#![no_main]

use xebec_recompress::{Description, Restorer};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((length, rest)) = input.split_first_chunk::<2>() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (description, plain) = rest.split_at(length);
    let mut bytes = b"XBRECOMP\x01\x00\x00\x00".to_vec();
    bytes.extend_from_slice(description);
    let Ok(description) = Description::from_bytes(&bytes) else {
        return;
    };
    assert_eq!(description.to_bytes(), bytes);
    let mut stream = Vec::new();
    let mut restorer = Restorer::new(&description);
    if restorer.write(plain, &mut stream).is_ok() && restorer.finish(&mut stream).is_ok() {
        assert_eq!(stream.len() as u64, description.stream_length());
    }
});
