//! Any bytes are split and joined, in pieces of any size, and their recipe comes back. The first byte says how long the pieces are and which cutter
//! is used. Blocks that look like headers get the right checksum, so that what is in them matters.
#![no_main]

use xebec_recipe::{Blob, Cutter, Limits, Part, Piece, Recipe, RecipeBuilder, Splitter};

const BLOCK: usize = 512;

/// Writes the checksums of headers.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(BLOCK) {
        if block[257..262] == *b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    bytes
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let mut plain = with_checksums(rest);
    if first & 0x40 != 0 {
        // Long runs of zeros, and a file that is cut by content.
        plain.resize(plain.len() + (1 << 16), 0);
        plain.extend_from_slice(rest);
    }
    let cutter = match first & 0x80 {
        0 => Cutter::Files,
        _ => Cutter::Content { average: 4096 },
    };
    let mut joined = Vec::new();
    let mut builder = RecipeBuilder::new(Limits::default());
    let mut chunks = std::collections::HashMap::new();
    let mut sink = |piece: Piece<'_>| {
        let id = builder.add(piece).expect("a piece that is refused");
        match piece {
            Piece::Inline(bytes) => joined.extend_from_slice(bytes),
            Piece::Zeros(length) => joined.resize(joined.len() + length as usize, 0),
            Piece::Chunk { bytes, .. } => {
                joined.extend_from_slice(bytes);
                chunks.insert(id, bytes.to_vec());
            }
        }
    };
    let mut splitter = Splitter::new(cutter);
    for piece in plain.chunks(usize::from(first & 0x3f) * 97 + 1) {
        splitter.write(piece, &mut sink);
    }
    splitter.finish(&mut sink);
    assert!(joined == plain, "the pieces are other bytes");

    let blob = Blob {
        digest: "sha256:ab".to_owned(),
        size: 7,
    };
    let recipe = builder
        .finish(blob, Vec::new())
        .expect("a recipe that is refused");
    let read = Recipe::from_bytes(&recipe.to_bytes(), &Limits::default());
    let read = read.expect("a recipe that is not read");
    assert!(read == recipe, "the recipe does not come back");
    let mut made = Vec::new();
    for part in read.parts() {
        match part {
            Part::Inline(bytes) => made.extend_from_slice(bytes),
            Part::Zeros(length) => made.resize(made.len() + length as usize, 0),
            Part::Chunk { id, .. } => made.extend_from_slice(&chunks[&Some(id)]),
        }
    }
    assert!(made == plain, "the recipe makes other bytes");
});
