//! Packs are made, their indexes read, and their chunks found.

use proptest::prelude::*;
use xebec_recipe::{
    CannotAdd, ChunkId, Damaged, FromEnd, Hint, MOST_CHUNK, Options, Pack, PackIndex, PackWriter,
};

use crate::made::Numbers;

const SMALL: Options = Options {
    level: 1,
    frame_size: 4096,
};

/// Chunks like files: some similar, some not.
fn chunks(count: usize) -> Vec<(Vec<u8>, Hint)> {
    let mut numbers = Numbers(21);
    let chunk = |number: usize| {
        let length = 1 + numbers.next() as usize % 3000;
        let name = ["a/README", "b/lib.so", "c/main.rs", "d/x.py"][number % 4];
        let bytes = if number.is_multiple_of(5) {
            numbers.bytes(length)
        } else {
            numbers.text(length)
        };
        (bytes, Hint::of(name.as_bytes(), length as u64))
    };
    (0..count).map(chunk).collect()
}

fn pack(chunks: &[(Vec<u8>, Hint)], options: Options) -> Pack {
    let mut writer = PackWriter::new(options);
    for (bytes, hint) in chunks {
        writer.add(ChunkId::of(bytes), bytes, hint).unwrap();
    }
    writer.finish().unwrap()
}

fn index(pack: &[u8]) -> PackIndex {
    match PackIndex::from_end(pack, pack.len() as u64).unwrap() {
        FromEnd::Index(index) => index,
        FromEnd::NeedsMore(more) => panic!("needs {more} bytes"),
    }
}

/// Reads a chunk as a store does.
fn read(pack: &[u8], index: &PackIndex, id: &ChunkId) -> Option<Vec<u8>> {
    let place = index.find(id)?;
    let compressed = &pack[place.frame.start as usize..place.frame.end as usize];
    let plain = index.decode(place.frame_number, compressed).unwrap();
    Some(plain[place.within].to_vec())
}

/// Writes the digest of the index anew.
fn seal(pack: &mut [u8], index_length: usize) {
    let end = pack.len() - 44;
    let digest = ChunkId::of(&pack[end - 16 - index_length..end]).0;
    pack[end..end + 32].copy_from_slice(&digest);
}

#[test]
fn each_chunk_is_found_and_others_are_not() {
    let chunks = chunks(300);
    for options in [SMALL, Options::default()] {
        let pack = pack(&chunks, options);
        let index = index(&pack.bytes);
        for (bytes, _) in &chunks {
            assert_eq!(
                read(&pack.bytes, &index, &ChunkId::of(bytes)).as_ref(),
                Some(bytes)
            );
        }
        assert_eq!(index.find(&ChunkId::of(b"not there")), None);
        let ids: Vec<ChunkId> = index.chunks().map(|(id, _)| id).collect();
        assert_eq!(ids, pack.ids);
        assert!(index.chunks().all(|(id, place)| index.find(&id) == Some(place)));
    }
}

#[test]
fn frames_are_about_as_long_as_wanted_and_a_long_chunk_has_its_own() {
    let mut chunks = chunks(200);
    chunks.push((Numbers(4).bytes(50_000), Hint::of(b"m/lib.so", 50_000)));
    let pack = pack(&chunks, SMALL);
    let index = index(&pack.bytes);
    let mut lengths = vec![0; index.frames() as usize];
    for (_, place) in index.chunks() {
        assert_eq!(place.within.start, lengths[place.frame_number as usize]);
        lengths[place.frame_number as usize] = place.within.end;
    }
    let long: Vec<usize> = lengths.iter().copied().filter(|&length| length > 4096).collect();
    assert_eq!(long, [50_000]);
    assert!(
        lengths.iter().sum::<usize>() / lengths.len() > 2000,
        "{lengths:?}"
    );
    let ranges: Vec<_> = (0..index.frames())
        .map(|number| index.frame(number).unwrap())
        .collect();
    assert!(ranges[0].start == 12 && ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert_eq!(index.frame(index.frames()), None);
}

#[test]
fn similar_chunks_are_next_to_each_other() {
    // Files of two names come by turns; those of one name are alike, and do not compress otherwise.
    let [one, two] = [1, 2].map(|seed| {
        Numbers(seed)
            .bytes(6000)
            .iter()
            .map(|byte| b'a' + byte % 16)
            .collect::<Vec<u8>>()
    });
    let chunk = |number: usize| {
        let (mut bytes, name) = if number.is_multiple_of(2) {
            (one.clone(), "a/COPYING")
        } else {
            (two.clone(), "b/NEWS")
        };
        bytes[number * 7] = b'!';
        let mut hint = Hint::of(name.as_bytes(), 6000);
        hint.kind = Hint::kind_of(&bytes);
        (bytes, hint)
    };
    let chunks: Vec<_> = (0..40).map(chunk).collect();
    let options = Options {
        level: 3,
        frame_size: 64 << 10,
    };
    let sorted = pack(&chunks, options);
    let without: Vec<_> = chunks
        .iter()
        .map(|(bytes, _)| (bytes.clone(), Hint::default()))
        .collect();
    let unsorted = pack(&without, options);
    let arrived: Vec<ChunkId> = chunks.iter().map(|(bytes, _)| ChunkId::of(bytes)).collect();
    assert_eq!(unsorted.ids, arrived, "chunks without hints stay in their order");
    assert_ne!(sorted.ids, arrived);
    assert!(
        sorted.bytes.len() < unsorted.bytes.len(),
        "{} {}",
        sorted.bytes.len(),
        unsorted.bytes.len()
    );
}

#[test]
fn a_chunk_that_is_added_twice_is_there_once() {
    let mut writer = PackWriter::new(SMALL);
    let id = ChunkId::of(b"chunk");
    for _ in 0..2 {
        writer.add(id, b"chunk", &Hint::default()).unwrap();
    }
    assert_eq!(writer.plain_bytes(), 5);
    let long = vec![1; MOST_CHUNK + 1];
    assert_eq!(
        writer.add(ChunkId::of(b""), b"", &Hint::default()),
        Err(CannotAdd::Length(0))
    );
    assert_eq!(
        writer.add(id, &long, &Hint::default()),
        Err(CannotAdd::Length(long.len()))
    );
    assert_eq!(writer.finish().unwrap().ids, [id]);
}

#[test]
fn a_chunk_of_the_largest_size_is_packed() {
    let bytes = vec![7; MOST_CHUNK];
    let pack = pack(&[(bytes.clone(), Hint::default())], SMALL);
    assert!(read(&pack.bytes, &index(&pack.bytes), &ChunkId::of(&bytes)).unwrap() == bytes);
}

#[test]
fn a_pack_without_chunks_is_one() {
    let pack = pack(&[], SMALL);
    assert_eq!(index(&pack.bytes).frames(), 0);
}

#[test]
fn the_end_says_how_much_of_it_is_needed() {
    let pack = pack(&chunks(300), SMALL).bytes;
    let size = pack.len() as u64;
    let of_end = |length: usize| PackIndex::from_end(&pack[pack.len() - length..], size);
    for length in [0, PackIndex::trailer_size() - 1] {
        assert!(matches!(of_end(length), Ok(FromEnd::NeedsMore(60))));
    }
    let Ok(FromEnd::NeedsMore(needed)) = of_end(60) else {
        panic!("the trailer is not enough");
    };
    assert!(needed > 300 * 32 && needed < 300 * 32 + 10_000, "{needed}");
    assert!(matches!(of_end(needed - 1), Ok(FromEnd::NeedsMore(more)) if more == needed));
    assert!(matches!(of_end(needed), Ok(FromEnd::Index(_))));
    for other in [size - 1, size + 1] {
        let end = &pack[pack.len() - needed..];
        assert_eq!(PackIndex::from_end(end, other).unwrap_err(), Damaged::Length);
    }
    assert_eq!(PackIndex::from_end(&pack, 100).unwrap_err(), Damaged::Length);
}

#[test]
fn any_damage_is_seen() {
    let pack = pack(&chunks(40), SMALL).bytes;
    let whole = index(&pack);
    let end = whole.frame(whole.frames() - 1).unwrap().end as usize;
    for at in end..pack.len() {
        let mut damaged = pack.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(
            PackIndex::from_end(&damaged, damaged.len() as u64).is_err(),
            "at {at}"
        );
    }
    for number in 0..whole.frames() {
        let range = whole.frame(number).unwrap();
        let mut frame = pack[range.start as usize..range.end as usize].to_vec();
        assert!(whole.decode(number, &frame).is_ok());
        assert!(whole.decode(number + 1, &frame).is_err());
        let last = frame.len() - 1;
        frame[last] ^= 1;
        assert_eq!(whole.decode(number, &frame), Err(Damaged::FrameDigest(number)));
        assert_eq!(
            whole.decode(number, &frame[..last]),
            Err(Damaged::FrameDigest(number))
        );
    }
    assert_eq!(
        whole.decode(whole.frames(), &[]),
        Err(Damaged::NoFrame(whole.frames()))
    );
}

#[test]
fn an_index_that_lies_is_refused() {
    let chunks: Vec<_> = (0..20_u8)
        .map(|number| (vec![number; 500], Hint::default()))
        .collect();
    let pack = pack(&chunks, SMALL).bytes;
    let first_frame = index(&pack).frames();
    let end = index(&pack).frame(first_frame - 1).unwrap().end as usize;
    let length = pack.len() - 60 - end;
    let refused = |change: &dyn Fn(&mut Vec<u8>), wanted: Damaged| {
        let mut lying = pack.clone();
        change(&mut lying);
        seal(&mut lying, length);
        assert_eq!(
            PackIndex::from_end(&lying, lying.len() as u64).unwrap_err(),
            wanted
        );
    };
    let at = pack.len() - 60;
    // Counts of frames and chunks, and the length of the numbers.
    refused(&|pack| pack[at + 3] = 0x7f, Damaged::Number);
    refused(&|pack| pack[at + 7] = 0x7f, Damaged::Number);
    refused(&|pack| pack[at + 11] = 0x7f, Damaged::Number);
    refused(&|pack| pack[at + 8] -= 1, Damaged::Number);
    // Two chunks with one id.
    refused(&|pack| pack.copy_within(at - 32..at, at - 64), Damaged::Number);
    refused(&|pack| pack[at + 48] = 3, Damaged::Version(3));
    refused(&|pack| *pack.last_mut().unwrap() = b'?', Damaged::Magic);
}

/// The end of a pack whose index says this of its frames, all with one digest, and of its chunks; and how long the pack is then.
fn crafted(digest: [u8; 32], counts: &[u8], compressed: &[u8], lengths: &[&[u8]]) -> (Vec<u8>, u64) {
    let numbers = [counts, compressed, &lengths.concat()].concat();
    let mut end = numbers.clone();
    end.extend(digest.repeat(counts.len()));
    (0..lengths.len()).for_each(|number| end.extend([number as u8; 32]));
    for count in [counts.len(), lengths.len(), numbers.len(), numbers.len()] {
        end.extend((count as u32).to_le_bytes());
    }
    let digest = ChunkId::of(&end);
    end.extend(digest.as_bytes());
    end.extend(b"\x01\0\0\0XBPACKED");
    let frames: u64 = compressed.iter().map(|&length| u64::from(length)).sum();
    let size = 12 + frames + end.len() as u64;
    (end, size)
}

#[test]
fn lengths_of_chunks_and_frames_have_limits() {
    // 8 MiB, 8 MiB and one, 1.
    let (most, beyond, one) = (&[0x80, 0x80, 0x80, 4][..], &[0x81, 0x80, 0x80, 4][..], &[1][..]);
    let read = |counts: &[u8], compressed: &[u8], lengths: &[&[u8]]| {
        let (end, size) = crafted([0; 32], counts, compressed, lengths);
        PackIndex::from_end(&end, size).map(|read| matches!(read, FromEnd::Index(_)))
    };
    assert_eq!(read(&[1, 1], &[9, 9], &[most, one]), Ok(true));
    assert_eq!(read(&[1, 1], &[9, 9], &[beyond, one]), Err(Damaged::Number));
    assert_eq!(
        read(&[2], &[9], &[most, one]),
        Err(Damaged::Number),
        "a frame of more than 8 MiB"
    );
    assert_eq!(read(&[1], &[9], &[&[0]]), Err(Damaged::Number), "an empty chunk");
    assert_eq!(
        read(&[1, 0], &[9, 9], &[one, one]),
        Err(Damaged::Number),
        "an empty frame"
    );
    assert_eq!(
        read(&[1, 2], &[9, 9], &[one, one]),
        Err(Damaged::Number),
        "too few chunks"
    );
    assert_eq!(
        read(&[1, 1], &[9, 9], &[one, one, one]),
        Err(Damaged::Number),
        "too many chunks"
    );
    assert_eq!(
        read(&[1], &[0], &[one]),
        Err(Damaged::Number),
        "nothing, compressed"
    );
    let (end, size) = crafted([0; 32], &[1], &[9], &[one]);
    assert_eq!(PackIndex::from_end(&end, size + 1).unwrap_err(), Damaged::Length);
}

#[test]
fn a_frame_that_is_not_as_long_as_its_chunks_is_refused() {
    let frame = zstd::bulk::compress(b"0123456789", 3).unwrap();
    let decoded = |length: u8| {
        let digest = ChunkId::of(&frame).0;
        let (end, size) = crafted(digest, &[1], &[frame.len() as u8], &[&[length]]);
        match PackIndex::from_end(&end, size) {
            Ok(FromEnd::Index(index)) => index.decode(0, &frame),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(decoded(10).as_deref(), Ok(&b"0123456789"[..]));
    assert_eq!(decoded(9), Err(Damaged::Frame(0)));
    assert_eq!(decoded(11), Err(Damaged::Frame(0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_chunks_are_packed_and_found(
        chunks in prop::collection::vec((any::<u64>(), 1..9000usize, "[a-c./]{0,6}"), 0..40), frame_size in 0..30_000usize,
    ) {
        let chunks: Vec<_> = chunks
            .into_iter()
            .map(|(seed, length, name)| (Numbers(seed).text(length), Hint::of(name.as_bytes(), length as u64)))
            .collect();
        let pack = pack(&chunks, Options { level: 1, frame_size });
        let index = index(&pack.bytes);
        for (bytes, _) in &chunks {
            let found = read(&pack.bytes, &index, &ChunkId::of(bytes));
            prop_assert_eq!(found.as_ref(), Some(bytes));
        }
    }

    #[test]
    fn no_sealed_index_makes_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut pack = pack(&chunks(20), SMALL).bytes;
        let whole = index(&pack);
        let end = whole.frame(whole.frames() - 1).unwrap().end as usize;
        let length = pack.len() - 60 - end;
        let at = end + at.index(length + 16);
        pack[at] = byte;
        seal(&mut pack, length);
        if let Ok(FromEnd::Index(index)) = PackIndex::from_end(&pack, pack.len() as u64) {
            for number in 0..index.frames() {
                let range = index.frame(number).unwrap();
                let _ = index.decode(number, &pack[range.start as usize..range.end as usize]);
            }
        }
    }
}
