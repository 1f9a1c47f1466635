//! Any bytes as a pack, with the right magic and digest of the index: refused, or each chunk is found in a frame that is decoded or refused. The last 16
//! bytes are the counts of the trailer.
#![no_main]

use xebec_recipe::{ChunkId, FromEnd, PackIndex};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((rest, counts)) = input.split_last_chunk::<16>() else {
        return;
    };
    let count =
        |at: usize| u32::from_le_bytes([counts[at], counts[at + 1], counts[at + 2], counts[at + 3]]) as usize;
    let index = count(12) + 32 * (count(0) + count(4));
    let begin = rest.len().saturating_sub(index);
    let digest = ChunkId::of(&input[begin..]);
    let mut pack = b"XBPACK\r\n\x01\x00\x00\x00".to_vec();
    pack.extend_from_slice(input);
    pack.extend_from_slice(digest.as_bytes());
    pack.extend_from_slice(b"\x01\x00\x00\x00XBPACKED");
    let size = pack.len() as u64;
    let index = match PackIndex::from_end(&pack[pack.len() - PackIndex::trailer_size()..], size) {
        Err(_) => return,
        Ok(FromEnd::Index(index)) => index,
        Ok(FromEnd::NeedsMore(more)) => match PackIndex::from_end(&pack[pack.len() - more..], size) {
            Err(_) => return,
            Ok(FromEnd::Index(index)) => index,
            Ok(FromEnd::NeedsMore(again)) => panic!("{more} bytes are not enough, but {again}"),
        },
    };
    for (id, place) in index.chunks() {
        assert_eq!(index.find(&id).as_ref(), Some(&place));
        let compressed = &pack[place.frame.start as usize..place.frame.end as usize];
        if let Ok(plain) = index.decode(place.frame_number, compressed) {
            assert!(
                plain.get(place.within).is_some(),
                "a chunk that is beyond its frame"
            );
        }
    }
});
