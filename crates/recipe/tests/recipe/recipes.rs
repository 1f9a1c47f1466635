//! Recipes are built, written, read, and asked for ranges.

use proptest::prelude::*;
use xebec_recipe::{
    Blob, CannotBuild, ChunkId, Cutter, InvalidRecipe, Limits, MOST_CHUNK, Part, Piece, Recipe, RecipeBuilder,
};

use crate::made::{Numbers, file, recipe, tar, tree};

const LIMITS: Limits = Limits { most: 64 << 20 };

fn builder() -> RecipeBuilder {
    RecipeBuilder::new(LIMITS)
}

fn comes_back(recipe: &Recipe) -> Vec<u8> {
    let bytes = recipe.to_bytes();
    assert_eq!(Recipe::from_bytes(&bytes, &LIMITS).as_ref(), Ok(recipe));
    bytes
}

/// The plain bytes, if each chunk is `contents` of its id.
fn plain(recipe: &Recipe, contents: impl Fn(ChunkId) -> Vec<u8>) -> Vec<u8> {
    let mut plain = Vec::new();
    for part in recipe.parts() {
        match part {
            Part::Inline(bytes) => plain.extend_from_slice(bytes),
            Part::Zeros(length) => plain.resize(plain.len() + length as usize, 0),
            Part::Chunk { id, .. } => plain.extend(contents(id)),
        }
    }
    plain
}

/// Writes the digest at the end anew.
fn seal(bytes: &mut [u8]) {
    let (own, digest) = bytes.split_last_chunk_mut::<32>().unwrap();
    *digest = ChunkId::of(own).0;
}

#[test]
fn a_recipe_of_a_tree_comes_back_and_makes_the_tree() {
    let tree = tree();
    let recipe = recipe(&tree, Cutter::Files);
    comes_back(&recipe);
    assert_eq!(recipe.plain_size(), tree.len() as u64);
    assert_eq!(recipe.blob().size, 4711);
    assert_eq!(recipe.description(), b"how it is compressed");
    let mut chunks = std::collections::HashMap::new();
    for piece in crate::made::split(&tree, Cutter::Files, 1000) {
        if let crate::made::Owned::Chunk(bytes, ..) = piece {
            chunks.insert(ChunkId::of(&bytes), bytes);
        }
    }
    assert!(plain(&recipe, |id| chunks[&id].clone()) == tree);
    // Two files are the same.
    let uses = recipe.parts().filter(|part| matches!(part, Part::Chunk { .. }));
    assert_eq!(uses.count(), recipe.chunks().len() + 1);
    assert_eq!(recipe.chunks().len(), chunks.len());
}

#[test]
fn a_file_of_a_tar_stream_costs_few_bytes_beside_its_id() {
    let plain = tar(|builder| {
        let mut numbers = Numbers(2);
        for number in 0..2000 {
            let length = 200 + numbers.next() as usize % 500;
            let name = format!(
                "usr/lib/python3/dist-packages/package{}/module_{number}.py",
                number / 40
            );
            file(builder, &name, &numbers.bytes(length));
        }
    });
    let bytes = comes_back(&recipe(&plain, Cutter::Files));
    let each = (bytes.len() - 32 * 2000) as f64 / 2000.0;
    assert!(each < 6.0, "{each} bytes");
}

#[test]
fn odd_headers_come_back() {
    let mut numbers = Numbers(11);
    let mut plain = Vec::new();
    // Any bytes with the checksum of a header: sizes that cannot be guessed, kinds that nobody knows, names without an end.
    for number in 0..200_usize {
        let mut block = [0; 512];
        let filled = numbers.next() as usize % 512;
        block[..filled].copy_from_slice(&numbers.bytes(filled));
        if number % 3 == 0 {
            block[156] = b"x0Lg5"[number % 5];
            block[135] = b" \0"[number % 2];
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        let forms = [
            format!("{sum:06o}\0 "),
            format!("{sum:07o}\0"),
            format!("{sum:06o} \0"),
        ];
        block[148..156].copy_from_slice(forms[number % 3].as_bytes());
        plain.extend(block);
        let length = numbers.next() as usize % 700;
        plain.extend(numbers.bytes(length));
        if number % 2 == 0 {
            plain.resize(plain.len().next_multiple_of(512), 0);
        }
    }
    let mut builder = builder();
    for (number, piece) in plain.chunks(1800).enumerate() {
        builder.add(Piece::Inline(piece)).unwrap();
        if number % 4 == 1 {
            builder.add(Piece::Zeros(9000 + number as u64 % 3 * 512)).unwrap();
        }
    }
    comes_back(&builder.finish(Blob::default(), Vec::new()).unwrap());
}

#[test]
fn recipes_without_and_with_any_one_part_come_back() {
    let id = ChunkId::of(b"a chunk");
    comes_back(&builder().finish(Blob::default(), Vec::new()).unwrap());
    for kind in 0..4 {
        let mut builder = builder();
        match kind {
            0 => builder.add(Piece::Inline(b"x")).map(drop).unwrap(),
            1 => builder.add(Piece::Zeros(1 << 59)).map(drop).unwrap(),
            2 => builder.add_chunk(id, MOST_CHUNK as u32).unwrap(),
            _ => (0..3).for_each(|_| builder.add_chunk(id, 7).unwrap()),
        }
        comes_back(&builder.finish(Blob::default(), b"d".repeat(1000)).unwrap());
    }
}

#[test]
fn parts_of_a_range_are_those_that_make_it() {
    let mut builder = builder();
    let id = ChunkId::of(b"0123456789");
    builder.add(Piece::Inline(b"abcde")).unwrap();
    builder.add(Piece::Inline(b"fgh")).unwrap();
    builder.add_chunk(id, 10).unwrap();
    builder.add_chunk(id, 10).unwrap();
    builder.add(Piece::Zeros(3)).unwrap();
    builder.add(Piece::Zeros(4)).unwrap();
    builder.add(Piece::Inline(b"end")).unwrap();
    let recipe = builder.finish(Blob::default(), Vec::new()).unwrap();
    assert_eq!(recipe.parts().len(), 5);
    let whole = plain(&recipe, |_| b"0123456789".to_vec());
    assert_eq!(whole, b"abcdefgh01234567890123456789\0\0\0\0\0\0\0end");
    for begin in 0..=whole.len() {
        for end in 0..=whole.len() + 2 {
            let mut found = Vec::new();
            for part in recipe.parts_in(begin as u64..end as u64) {
                assert!(!part.within.is_empty() && part.within.end <= part.part.length());
                let own = match part.part {
                    Part::Inline(bytes) => bytes,
                    Part::Zeros(_) => &[0; 7],
                    Part::Chunk { .. } => b"0123456789",
                };
                found.extend_from_slice(&own[part.within.start as usize..part.within.end as usize]);
            }
            let wanted = whole.get(begin..end.min(whole.len())).unwrap_or_default();
            assert_eq!(found, wanted, "{begin}..{end}");
        }
    }
}

#[test]
fn a_builder_refuses_what_cannot_be() {
    let id = ChunkId::of(b"a chunk");
    assert_eq!(builder().add_chunk(id, 0), Err(CannotBuild::Length));
    assert_eq!(
        builder().add_chunk(id, MOST_CHUNK as u32 + 1),
        Err(CannotBuild::Length)
    );
    let mut twice = builder();
    twice.add_chunk(id, 7).unwrap();
    assert_eq!(twice.add_chunk(id, 8), Err(CannotBuild::Length));
    let mut long = builder();
    long.add(Piece::Zeros(1 << 60)).unwrap();
    assert_eq!(long.add(Piece::Zeros(1)), Err(CannotBuild::Length));
    let mut small = RecipeBuilder::new(Limits { most: 1000 });
    small.add(Piece::Inline(&[1; 900])).unwrap();
    assert_eq!(
        small.add(Piece::Inline(&[1; 100])),
        Err(CannotBuild::TooLarge(1000))
    );
    let blob = Blob {
        digest: "d".repeat(257),
        size: 0,
    };
    assert_eq!(builder().finish(blob, Vec::new()), Err(CannotBuild::Length));
}

#[test]
fn a_recipe_that_is_larger_than_the_limit_is_refused() {
    let recipe = recipe(&tree(), Cutter::Files);
    let bytes = recipe.to_bytes();
    let most = Limits {
        most: recipe.inline_size(),
    };
    assert_eq!(
        Recipe::from_bytes(&bytes, &most),
        Err(InvalidRecipe::TooLarge(most.most))
    );
    // The limit of the builder is that of the reader.
    let (mut least, mut enough) = (0, 64 << 20);
    while least + 1 < enough {
        let most = (least + enough) / 2;
        match Recipe::from_bytes(&bytes, &Limits { most }) {
            Ok(_) => enough = most,
            Err(_) => least = most,
        }
    }
    assert!(enough < 2 * recipe.inline_size(), "{enough}");
}

/// Headers that are unlike each other take more bytes in columns than they have.
#[test]
fn all_that_a_builder_takes_is_read_with_the_same_limit() {
    let mut numbers = Numbers(3);
    let mut headers = Vec::new();
    for _ in 0..200 {
        let mut block = numbers.bytes(512);
        block.iter_mut().for_each(|byte| *byte |= 1);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        headers.extend(block);
    }
    let limits = Limits {
        most: headers.len() as u64 + 2 * 24 + 40,
    };
    let mut builder = RecipeBuilder::new(limits);
    builder.add(Piece::Inline(&headers)).unwrap();
    let recipe = builder.finish(Blob::default(), Vec::new());
    let recipe = recipe.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        Recipe::from_bytes(&recipe.to_bytes(), &limits).as_ref(),
        Ok(&recipe)
    );
}

#[test]
fn any_damage_is_seen() {
    let bytes = recipe(&tree(), Cutter::Files).to_bytes();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(Recipe::from_bytes(&damaged, &LIMITS).is_err(), "at {at}");
        assert!(Recipe::from_bytes(&bytes[..at], &LIMITS).is_err(), "{at} bytes");
    }
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(
        Recipe::from_bytes(&newer, &LIMITS),
        Err(InvalidRecipe::Version(2))
    );
    let mut other = bytes.clone();
    other[9000 % bytes.len()] ^= 1;
    assert_eq!(Recipe::from_bytes(&other, &LIMITS), Err(InvalidRecipe::Digest));
}

#[test]
fn a_head_that_lies_is_refused() {
    let mut builder = builder();
    builder.add(Piece::Inline(b"inline")).unwrap();
    builder.add_chunk(ChunkId::of(b"a"), 1).unwrap();
    let bytes = builder.finish(Blob::default(), Vec::new()).unwrap().to_bytes();
    // After the magic, the version, an empty digest and a size of 0: the plain size, parts, chunks, bytes of frame.
    for at in 14..18 {
        for value in [0, 100, 0x7f] {
            let mut lying = bytes.clone();
            lying[at] = value;
            seal(&mut lying);
            assert_eq!(
                Recipe::from_bytes(&lying, &LIMITS),
                Err(InvalidRecipe::Number),
                "{value} at {at}"
            );
        }
    }
    let mut longer = bytes.clone();
    longer.insert(bytes.len() - 32, 0);
    seal(&mut longer);
    assert_eq!(Recipe::from_bytes(&longer, &LIMITS), Err(InvalidRecipe::Number));
}

#[test]
fn a_description_is_counted_and_is_as_long_as_it_says() {
    let bytes = builder()
        .finish(Blob::default(), vec![b'd'; 1000])
        .unwrap()
        .to_bytes();
    let limit = |most| Recipe::from_bytes(&bytes, &Limits { most }).map(|recipe| recipe.description().len());
    assert_eq!(limit(1000), Ok(1000));
    assert_eq!(limit(999), Err(InvalidRecipe::TooLarge(999)));
    let at = bytes.windows(2).position(|window| window == [0xe8, 7]).unwrap();
    for length in [0xe7, 0xe9] {
        let mut lying = bytes.clone();
        lying[at] = length;
        seal(&mut lying);
        assert_eq!(
            Recipe::from_bytes(&lying, &LIMITS),
            Err(InvalidRecipe::Number),
            "{length}"
        );
    }
}

#[test]
fn sections_that_are_longer_than_they_should_be_are_refused() {
    let mut builder = builder();
    builder.add(Piece::Inline(b"inline")).unwrap();
    let bytes = builder
        .finish(Blob::default(), b"abc".to_vec())
        .unwrap()
        .to_bytes();
    // The description has more stored bytes than plain ones.
    let mut lying = bytes.clone();
    let at = lying
        .windows(5)
        .position(|window| window == b"\x03\x03abc")
        .unwrap();
    lying[at] = 2;
    seal(&mut lying);
    assert_eq!(Recipe::from_bytes(&lying, &LIMITS), Err(InvalidRecipe::Number));
    // The last column has a byte more than the frame.
    let mut lying = bytes.clone();
    let at = lying
        .windows(8)
        .position(|window| window == b"\x06\x06inline")
        .unwrap();
    lying.splice(at..at + 8, *b"\x07\x07inline!");
    seal(&mut lying);
    assert_eq!(Recipe::from_bytes(&lying, &LIMITS), Err(InvalidRecipe::Number));
}

#[test]
fn an_id_that_no_part_uses_is_refused() {
    let mut builder = builder();
    builder.add_chunk(ChunkId([5; 32]), 9).unwrap();
    let mut bytes = builder.finish(Blob::default(), Vec::new()).unwrap().to_bytes();
    let at = bytes.windows(32).position(|window| window == [5; 32]).unwrap();
    bytes.splice(at..at, [4; 32]);
    // After the magic, the version, an empty digest, a size of 0, the plain size and the number of parts.
    bytes[16] = 2;
    seal(&mut bytes);
    assert_eq!(Recipe::from_bytes(&bytes, &LIMITS), Err(InvalidRecipe::Number));
}

#[test]
fn an_id_that_is_there_twice_is_refused() {
    let mut builder = builder();
    for number in [5, 6] {
        builder.add_chunk(ChunkId([number; 32]), 9).unwrap();
    }
    let mut bytes = builder.finish(Blob::default(), Vec::new()).unwrap().to_bytes();
    let at = bytes.windows(32).position(|window| window == [6; 32]).unwrap();
    bytes[at..at + 32].fill(5);
    seal(&mut bytes);
    assert_eq!(Recipe::from_bytes(&bytes, &LIMITS), Err(InvalidRecipe::Number));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_parts_come_back(parts in prop::collection::vec((0..4u8, 1..3000u64, any::<u64>()), 0..40)) {
        let mut builder = builder();
        for (kind, length, seed) in parts {
            match kind {
                0 => builder.add(Piece::Inline(&Numbers(seed).bytes(length as usize))).map(drop).unwrap(),
                1 => builder.add(Piece::Zeros(length * 7)).map(drop).unwrap(),
                2 => builder.add(Piece::Inline(&[0; 600][..length as usize % 600])).map(drop).unwrap(),
                // The same chunks again and again.
                _ => builder.add_chunk(ChunkId([(length % 5) as u8; 32]), (length % 5) as u32 + 1).unwrap(),
            }
        }
        let blob = Blob { digest: String::new(), size: u64::MAX };
        comes_back(&builder.finish(blob, Vec::new()).unwrap());
    }

    #[test]
    fn no_sealed_bytes_make_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in 0..40usize) {
        let mut bytes = recipe(&tree()[..20_000], Cutter::Files).to_bytes();
        let last = at.index(bytes.len());
        bytes[last] = byte;
        bytes.drain(last..(last + cut).min(bytes.len()));
        if bytes.len() > 44 {
            seal(&mut bytes);
        }
        if let Ok(recipe) = Recipe::from_bytes(&bytes, &LIMITS) {
            comes_back(&recipe);
        }
    }
}
