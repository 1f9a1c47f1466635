//! What one side takes apart, the other puts together again, and nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

use std::collections::HashMap;
use std::io::{self, Cursor, Write as _};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use xebec_assembly::{AssemblyError, Materials, Written, assemble, take_apart, write_contents};
use xebec_recipe::{Blob, ChunkId, Cutter, Limits, Piece, Recipe, RecipeBuilder};
use xebec_recompress::InvalidDescription;

/// A member of a tar stream.
fn member(tar: &mut Vec<u8>, name: &str, contents: &[u8]) {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", contents.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(contents);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut text = Vec::new();
    while text.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = state >> 33;
        text.extend_from_slice(format!("{:x} {} ", word % 900, word % 13).as_bytes());
    }
    text.truncate(length);
    text
}

/// Files, of which one is there twice, and a long run of zeros.
fn tar() -> Vec<u8> {
    let mut tar = Vec::new();
    for number in 0..12_u64 {
        member(&mut tar, &format!("file-{number}"), &text(number + 1, 30_000));
    }
    member(&mut tar, "again", &text(3, 30_000));
    member(&mut tar, "zeros", &vec![0; 300_000]);
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// As `xebec commit` compresses.
fn gzip(plain: &[u8], level: u32) -> Vec<u8> {
    let builder = flate2::GzBuilder::new().mtime(0).operating_system(255);
    let mut encoder = builder.write(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    let frames = plain
        .chunks(100_000)
        .map(|part| zstd::bulk::compress(part, 3).unwrap());
    frames.flatten().collect()
}

fn recipe_of(blob: &[u8]) -> Recipe {
    let of = Blob {
        digest: format!("sha256:{}", hex::encode(Sha256::digest(blob))),
        size: blob.len() as u64,
    };
    let recipe = take_apart(blob, of, Cutter::Files, Limits::default()).unwrap();
    // As it is sent.
    Recipe::from_bytes(&recipe.to_bytes(), &Limits::default()).unwrap()
}

/// The contents of all files.
fn contents() -> HashMap<ChunkId, Vec<u8>> {
    let files = (0..12).map(|number| text(number + 1, 30_000));
    files.map(|bytes| (ChunkId::of(&bytes), bytes)).collect()
}

fn from(here: &HashMap<ChunkId, Vec<u8>>, id: &ChunkId) -> io::Result<Bytes> {
    let bytes = here.get(id).cloned().ok_or(io::ErrorKind::NotFound)?;
    Ok(bytes.into())
}

struct Assembled {
    outcome: Result<Written, AssemblyError>,
    blob: Vec<u8>,
}

/// Puts a blob together of what is here and what was sent.
fn put_together(recipe: &Recipe, here: &HashMap<ChunkId, Vec<u8>>, sent: &[u8]) -> Assembled {
    let mut blob = Vec::new();
    let materials = Materials {
        is_here: &|id| here.contains_key(id),
        here: &mut |id| from(here, id),
        sent: &mut Cursor::new(sent),
    };
    let outcome = assemble(
        recipe,
        materials,
        &mut |bytes| {
            blob.extend(bytes);
            Ok(())
        },
        &mut || Ok(()),
    );
    Assembled { outcome, blob }
}

fn sent_for(recipe: &Recipe, blob: &[u8], here: &HashMap<ChunkId, Vec<u8>>) -> Vec<u8> {
    let mut sent = Vec::new();
    write_contents(recipe, blob, &|id| !here.contains_key(id), &mut sent).unwrap();
    sent
}

#[test]
fn what_one_side_takes_apart_the_other_puts_together_again() {
    let tar = tar();
    let mut blobs = vec![("plain", tar.clone()), ("zstd", zstd(&tar))];
    for level in 1..=9 {
        blobs.push(("gzip", gzip(&tar, level)));
    }
    for (name, blob) in blobs {
        let recipe = recipe_of(&blob);
        assert_eq!(recipe.chunks().count(), 12);
        let share = recipe.to_bytes().len() * 100 / blob.len();
        println!("{name}: {} bytes, recipe {share} %", blob.len());
        for lacking in [0, 1, 12] {
            let here: HashMap<_, _> = contents().into_iter().skip(lacking).collect();
            let sent = sent_for(&recipe, &blob, &here);
            let assembled = put_together(&recipe, &here, &sent);
            let written = assembled.outcome.unwrap();
            assert_eq!(written.sent, sent.len() as u64);
            assert_eq!(written.sent + written.left_out, 13 * 30_000);
            assert!(assembled.blob == blob, "{name} of {lacking}");
        }
    }
}

#[test]
fn contents_that_end_too_soon_or_go_on_are_no_blob() {
    let blob = gzip(&tar(), 6);
    let recipe = recipe_of(&blob);
    let nothing = HashMap::new();
    let mut sent = sent_for(&recipe, &blob, &nothing);
    let short = put_together(&recipe, &nothing, &sent[..sent.len() - 1]);
    assert!(matches!(short.outcome, Err(AssemblyError::Contents(_))));
    sent.push(0);
    let long = put_together(&recipe, &nothing, &sent);
    assert!(matches!(long.outcome, Err(AssemblyError::TooMany)));
}

#[test]
fn other_contents_make_another_blob_or_none() {
    let blob = gzip(&tar(), 6);
    let recipe = recipe_of(&blob);
    let nothing = HashMap::new();
    let mut sent = sent_for(&recipe, &blob, &nothing);
    for byte in &mut sent[30_000..30_100] {
        *byte ^= 0x55;
    }
    let assembled = put_together(&recipe, &nothing, &sent);
    assert!(assembled.outcome.is_err() || assembled.blob != blob);
    // A content that is here and is shorter than it was.
    let mut here = contents();
    here.values_mut().for_each(|bytes| bytes.truncate(100));
    let assembled = put_together(&recipe, &here, &[]);
    assert!(matches!(assembled.outcome, Err(AssemblyError::Here(_))));
}

#[test]
fn a_blob_is_no_longer_than_its_recipe_says() {
    let mut recipe = RecipeBuilder::new(Limits::default());
    recipe.add(Piece::Zeros(1 << 30)).unwrap();
    let of = Blob {
        digest: String::new(),
        size: 1 << 20,
    };
    let recipe = recipe.finish(of, Vec::new()).unwrap();
    let assembled = put_together(&recipe, &HashMap::new(), &[]);
    assert!(matches!(assembled.outcome, Err(AssemblyError::Size)));
    assert_eq!(assembled.blob.len(), 1 << 20);
}

#[test]
fn a_description_of_fewer_plain_bytes_ends_the_work_at_once() {
    let blob = gzip(&tar(), 6);
    let described = recipe_of(&blob).description().to_vec();
    let mut recipe = RecipeBuilder::new(Limits::default());
    recipe.add(Piece::Inline(&tar())).unwrap();
    recipe.add(Piece::Zeros(1 << 40)).unwrap();
    let of = Blob {
        digest: String::new(),
        size: blob.len() as u64,
    };
    let recipe = recipe.finish(of, described).unwrap();
    let mut asked = 0;
    let materials = Materials {
        is_here: &|_| false,
        here: &mut |_| Err(io::ErrorKind::NotFound.into()),
        sent: &mut io::empty(),
    };
    let outcome = assemble(&recipe, materials, &mut |_| Ok(()), &mut || {
        asked += 1;
        Ok(())
    });
    assert!(matches!(outcome, Err(AssemblyError::DoesNotFit)));
    assert_eq!(asked, 0);
}

#[test]
fn a_description_that_takes_too_much_memory_is_refused() {
    // 600,000 parts without bytes.
    let described = [&b"XBRECOMP\x01\0\0\0\xc0\xcf\x24"[..], &vec![0; 1_200_000]].concat();
    let of = Blob {
        digest: String::new(),
        size: 0,
    };
    let recipe = RecipeBuilder::new(Limits::default()).finish(of, described);
    let materials = Materials {
        is_here: &|_| false,
        here: &mut |_| Err(io::ErrorKind::NotFound.into()),
        sent: &mut io::empty(),
    };
    let outcome = assemble(&recipe.unwrap(), materials, &mut |_| Ok(()), &mut || Ok(()));
    assert!(
        matches!(
            outcome,
            Err(AssemblyError::Description(InvalidDescription::Memory(_)))
        ),
        "{outcome:?}"
    );
}

#[test]
fn the_work_ends_when_it_is_told_to() {
    let blob = gzip(&tar(), 6);
    let recipe = recipe_of(&blob);
    let here = contents();
    let materials = Materials {
        is_here: &|_| true,
        here: &mut |id| from(&here, id),
        sent: &mut io::empty(),
    };
    let late = || Err(io::ErrorKind::TimedOut.into());
    let outcome = assemble(&recipe, materials, &mut |_| Ok(()), &mut { late });
    assert!(matches!(outcome, Err(AssemblyError::Stopped(_))));
}
