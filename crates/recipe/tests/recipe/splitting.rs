//! Pieces are the bytes, and are cut where files begin and end.

use proptest::prelude::*;
use xebec_recipe::{Cutter, Hint, MOST_CHUNK};

use crate::made::{Numbers, Owned, file, header, join, split, tar, tree};

const SMALL: Cutter = Cutter::Content { average: 4096 };

/// The chunks among pieces: name, size and offset, and length.
fn chunks(pieces: &[Owned]) -> Vec<(String, u64, u64, usize)> {
    let chunk = |piece: &Owned| match piece {
        Owned::Chunk(bytes, hint) => {
            let name = String::from_utf8(hint.name.clone()).unwrap();
            Some((name, hint.size, hint.offset, bytes.len()))
        }
        _ => None,
    };
    pieces.iter().filter_map(chunk).collect()
}

/// Splits in pieces of several sizes, which makes no difference, and joins.
fn comes_back(plain: &[u8], cutter: Cutter) -> Vec<Owned> {
    let pieces = split(plain, cutter, 1 << 20);
    assert!(join(&pieces) == plain, "other bytes");
    for step in [5000, 511] {
        assert!(
            split(plain, cutter, step) == pieces,
            "pieces of {step} make a difference"
        );
    }
    for piece in &pieces {
        match piece {
            Owned::Zeros(length) => assert!(*length >= 128, "few zeros"),
            Owned::Chunk(bytes, ..) => assert!(!bytes.is_empty() && bytes.len() <= MOST_CHUNK),
            Owned::Inline(bytes) => assert!(!bytes.is_empty()),
        }
    }
    pieces
}

#[test]
fn a_file_is_a_chunk_and_what_frames_it_is_none() {
    let plain = tar(|builder| {
        file(builder, "etc/passwd", &[b'p'; 1500]);
        file(builder, "etc/short", &[b's'; 127]);
        file(builder, "etc/least.conf", &[b'l'; 128]);
        file(builder, "etc/empty", b"");
    });
    let pieces = comes_back(&plain, Cutter::Files);
    let name = |name: &str, length: usize| (name.to_owned(), length as u64, 0, length);
    assert_eq!(chunks(&pieces), [name("passwd", 1500), name("least.conf", 128)]);
    // Header; padding, two headers and the short file; padding, a header; the end.
    let frame: Vec<usize> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Owned::Inline(bytes) => Some(bytes.len()),
            _ => None,
        })
        .collect();
    // The last header ends with 248 zeros, which are part of the run.
    assert_eq!(frame, [512, 36 + 512 + 512 + 512, 384 + 512 - 248]);
    assert_eq!(pieces.last(), Some(&Owned::Zeros(10 * 1024 - 512 * 9 + 248)));
}

#[test]
fn sizes_and_names_come_from_records_and_long_names() {
    let long = "directory/".repeat(30) + "file.rs";
    let plain = tar(|builder| {
        builder
            .append_data(&mut header("x", 600), &long, &[b'a'; 600][..])
            .unwrap();
        // The size of the header is wrong, the record's counts.
        builder
            .append_pax_extensions([("size", &b"700"[..]), ("path", &b"d/by-record.c"[..])])
            .unwrap();
        let mut wrong = header("wrong", 0);
        wrong.set_cksum();
        builder.append(&wrong, &[][..]).unwrap();
        builder.get_mut().extend([b'b'; 700]);
        builder.get_mut().extend([0; 324]);
        // A number in base 256.
        let mut large = header("base-256", 800);
        large.as_mut_bytes()[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x20]);
        large.set_cksum();
        builder.get_mut().extend(large.as_bytes());
        builder.get_mut().extend([b'c'; 1024]);
    });
    let found = chunks(&comes_back(&plain, Cutter::Files));
    let name = |name: &str, length: usize| (name.to_owned(), length as u64, 0, length);
    assert_eq!(
        found,
        [
            name("file.rs", 600),
            name("by-record.c", 700),
            name("base-256", 800)
        ]
    );
}

#[test]
fn a_directory_with_a_size_and_a_sparse_file_do_not_lead_astray() {
    let plain = tar(|builder| {
        let mut directory = header("d/", 4096);
        directory.set_entry_type(tar::EntryType::Directory);
        directory.set_cksum();
        builder.get_mut().extend(directory.as_bytes());
        let mut sparse = header("sparse", 900);
        sparse.set_entry_type(tar::EntryType::GNUSparse);
        sparse.as_mut_bytes()[482] = 1;
        sparse.set_cksum();
        builder.get_mut().extend(sparse.as_bytes());
        let mut map = [7; 512];
        builder.get_mut().extend(map);
        map[504] = 0;
        builder.get_mut().extend(map);
        builder.get_mut().extend([b's'; 1024]);
        file(builder, "after", &[b'a'; 200]);
    });
    let found = chunks(&comes_back(&plain, Cutter::Files));
    assert_eq!(
        found,
        [
            ("sparse".to_owned(), 900, 0, 900),
            ("after".to_owned(), 200, 0, 200)
        ]
    );
}

#[test]
fn what_is_not_understood_is_one_file_without_a_name() {
    let mut plain = tar(|builder| file(builder, "known", &[b'k'; 5000]));
    let rest = Numbers(1).bytes(3000);
    plain.extend_from_slice(&rest);
    plain.extend(tar(|builder| file(builder, "unknown", &[b'u'; 5000])));
    let found = chunks(&comes_back(&plain, Cutter::Files));
    let length = 3000 + 10 * 1024;
    assert_eq!(
        found,
        [("known".to_owned(), 5000, 0, 5000), (String::new(), 0, 0, length)]
    );
    // Streams that are joined are understood.
    let mut plain = tar(|builder| file(builder, "one", &[b'1'; 5000]));
    plain.extend(tar(|builder| file(builder, "two", &[b'2'; 5000])));
    assert_eq!(chunks(&comes_back(&plain, Cutter::Files)).len(), 2);
}

#[test]
fn a_wrong_checksum_ends_what_is_understood() {
    let mut plain = tar(|builder| file(builder, "one", &[b'1'; 600]));
    plain[0] = b'O';
    let found = chunks(&comes_back(&plain, Cutter::Files));
    assert_eq!(found, [(String::new(), 0, 0, 10 * 1024)]);
}

#[test]
fn records_that_are_too_long_end_what_is_understood() {
    let long = vec![b'x'; (1 << 20) + 1];
    let plain = tar(|builder| {
        file(builder, "before", &[b'b'; 600]);
        builder.append_pax_extensions([("comment", &long[..])]).unwrap();
        file(builder, "after", &[b'a'; 600]);
    });
    let found = chunks(&comes_back(&plain, Cutter::Files));
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].0, "");
}

#[test]
fn long_runs_of_zeros_in_a_file_are_no_chunk() {
    let mut contents = vec![b'a'; 5000];
    contents.resize(5000 + 200_000, 0);
    contents.extend([b'b'; 6000]);
    contents.resize(contents.len() + 30_000, 0);
    contents.push(b'c');
    let plain = tar(|builder| {
        file(builder, "sparse", &contents);
        file(builder, "zeros", &[0; 200]);
    });
    let pieces = comes_back(&plain, Cutter::Files);
    // Runs begin and end with blocks of 4 KiB.
    let zeros = (5000 + 200_000) / 4096 * 4096 - 8192;
    let found = chunks(&pieces);
    let rest = contents.len() - zeros - 8192;
    let size = contents.len() as u64;
    let sparse = |offset: usize, length| ("sparse".to_owned(), size, offset as u64, length);
    assert_eq!(found, [sparse(0, 8192), sparse(8192 + zeros, rest)]);
    assert!(pieces.contains(&Owned::Zeros(zeros as u64)));
    assert!(pieces.contains(&Owned::Zeros(200)), "a file of zeros");
}

#[test]
fn a_large_file_is_chunks_of_the_largest_size() {
    let contents = Numbers(5).bytes(2 * MOST_CHUNK + 4097);
    let plain = tar(|builder| {
        file(builder, "large", &contents);
        file(builder, "whole", &contents[..MOST_CHUNK]);
    });
    let pieces = split(&plain, Cutter::Files, 100_000);
    assert!(join(&pieces) == plain);
    let lengths: Vec<usize> = chunks(&pieces).into_iter().map(|(.., length)| length).collect();
    assert_eq!(lengths, [MOST_CHUNK, MOST_CHUNK, 4097, MOST_CHUNK]);
    assert_eq!(chunks(&pieces)[2].2, 2 * MOST_CHUNK as u64);
}

#[test]
fn contents_are_cut_alike_after_an_insertion() {
    let contents = Numbers(7).bytes(3_000_000);
    let mut changed = contents.clone();
    changed.splice(1_000_000..1_000_000, *b"inserted");
    let of = |contents: &[u8]| {
        let plain = tar(|builder| file(builder, "file", contents));
        let pieces = comes_back(&plain, Cutter::CONTENT);
        let bytes = |piece: &Owned| match piece {
            Owned::Chunk(bytes, ..) => Some(bytes.clone()),
            _ => None,
        };
        pieces.iter().filter_map(bytes).collect::<Vec<_>>()
    };
    let (one, other) = (of(&contents), of(&changed));
    let average = contents.len() / one.len();
    assert!((50_000..100_000).contains(&average), "{average} bytes on average");
    assert!(
        one.iter()
            .rev()
            .skip(1)
            .all(|chunk| (16 << 10..=256 << 10).contains(&chunk.len()))
    );
    let new = other.iter().filter(|chunk| !one.contains(chunk)).count();
    assert!((1..=3).contains(&new), "{new} new chunks");
    // Never change this: what is kept already would be kept again.
    let lengths: Vec<usize> = one.iter().take(4).map(Vec::len).collect();
    assert_eq!(lengths, CUTS);
}

/// Where the first four cuts are.
const CUTS: [usize; 4] = [78510, 82059, 118483, 97579];

#[test]
fn all_chunks_of_a_file_have_the_kind_of_its_beginning() {
    let contents = [b"\x7fELF".to_vec(), Numbers(5).bytes(400_000)].concat();
    let plain = tar(|builder| {
        file(builder, "program", &contents);
        file(builder, "text", &b"in lines\n".repeat(100));
        file(builder, "picture", &[b"\x89PNG".to_vec(), vec![7; 200]].concat());
    });
    let pieces = split(&plain, SMALL, 1000);
    let mut kinds = pieces
        .iter()
        .filter_map(|piece| match piece {
            Owned::Chunk(_, hint) => Some((hint.name.clone(), hint.kind)),
            _ => None,
        })
        .collect::<Vec<_>>();
    assert!(kinds.len() > 20);
    kinds.dedup();
    assert_eq!(Hint::kind_of(b"\xcb\x0d\r\n\0\0"), *b"TX", "Python's bytecode");
    let kind = |name: &[u8], kind: &[u8; 2]| (name.to_vec(), *kind);
    assert_eq!(
        kinds,
        [
            kind(b"program", b"EL"),
            kind(b"text", b"TX"),
            kind(b"picture", b"\x89P")
        ]
    );
}

#[test]
fn a_file_that_is_not_long_is_not_cut_by_content() {
    let plain = tar(|builder| file(builder, "file", &Numbers(9).bytes(256 << 10)));
    assert_eq!(chunks(&comes_back(&plain, SMALL)).len(), 1);
    let plain = tar(|builder| file(builder, "file", &Numbers(9).bytes((256 << 10) + 1)));
    assert!(chunks(&comes_back(&plain, SMALL)).len() > 20);
}

#[test]
fn a_tree_is_split_and_joined() {
    let pieces = comes_back(&tree(), Cutter::Files);
    assert!(chunks(&pieces).len() > 50);
    comes_back(&tree(), SMALL);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_bytes_are_split_and_joined(
        seed in any::<u64>(), length in 0..40_000usize, zeros in 0..80_000usize, step in 1..9000usize,
    ) {
        let mut numbers = Numbers(seed);
        let mut plain = numbers.bytes(length);
        plain.resize(length + zeros, 0);
        plain.extend(numbers.text(length / 2));
        for cutter in [Cutter::Files, SMALL] {
            let pieces = split(&plain, cutter, step);
            prop_assert!(join(&pieces) == plain);
            prop_assert!(split(&plain, cutter, plain.len().max(1)) == pieces);
        }
    }

    #[test]
    fn damaged_trees_are_split_and_joined(
        cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), step in 1..9000usize,
    ) {
        let mut plain = tree();
        let last = at.index(plain.len());
        plain[last] = byte;
        plain.truncate(cut.index(plain.len()));
        for cutter in [Cutter::Files, SMALL] {
            let pieces = split(&plain, cutter, step);
            prop_assert!(join(&pieces) == plain);
            prop_assert!(split(&plain, cutter, plain.len().max(1)) == pieces);
        }
    }
}
