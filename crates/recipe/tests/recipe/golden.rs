//! Files of version 1 are read for ever. They were written once, by `XEBEC_WRITE_GOLDEN=1 cargo test -p xebec-recipe golden`, which writes only what is not there.

use std::path::PathBuf;

use xebec_recipe::{ChunkId, Cutter, FromEnd, Limits, Options, PackIndex, PackWriter, Part, Recipe};

use crate::made::{Numbers, Owned, recipe, split, tree};

/// The version of libzstd that wrote the files. Another one may write other bytes, which are as good.
const ZSTD: u32 = 10507;

/// The bytes of a golden file, and whether `made`, which this program writes, should be the same.
fn golden(name: &str, made: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name);
    if std::env::var_os("XEBEC_WRITE_GOLDEN").is_some() && !path.exists() {
        std::fs::write(&path, made).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    if zstd::zstd_safe::version_number() == ZSTD {
        assert!(golden == made, "{name} is written otherwise than before");
    }
    golden
}

#[test]
fn the_golden_recipe_is_read() {
    let wanted = recipe(&tree(), Cutter::Files);
    let golden = golden("recipe-1", &wanted.to_bytes());
    assert_eq!(Recipe::from_bytes(&golden, &Limits::default()), Ok(wanted));
}

#[test]
fn the_golden_recipe_of_contents_is_read() {
    let wanted = recipe(&Numbers(8).bytes(300_000), Cutter::Content { average: 8192 });
    let golden = golden("recipe-content-1", &wanted.to_bytes());
    assert!(wanted.parts().all(|part| matches!(part, Part::Chunk { .. })));
    assert_eq!(Recipe::from_bytes(&golden, &Limits::default()), Ok(wanted));
}

#[test]
fn the_golden_pack_is_read() {
    let pieces = split(&tree(), Cutter::Files, 1000);
    let chunks = pieces.iter().filter_map(|piece| match piece {
        Owned::Chunk(bytes, hint) => Some((bytes, hint)),
        _ => None,
    });
    let mut writer = PackWriter::new(Options {
        level: 9,
        frame_size: 64 << 10,
    });
    for (bytes, hint) in chunks.clone() {
        writer.add(ChunkId::of(bytes), bytes, hint).unwrap();
    }
    let golden = golden("pack-1", &writer.finish().unwrap().bytes);
    let Ok(FromEnd::Index(index)) = PackIndex::from_end(&golden, golden.len() as u64) else {
        panic!("the golden pack is not read");
    };
    assert!(index.frames() > 2);
    for (bytes, _) in chunks {
        let place = index.find(&ChunkId::of(bytes)).unwrap();
        let compressed = &golden[place.frame.start as usize..place.frame.end as usize];
        let frame = index.decode(place.frame_number, compressed).unwrap();
        assert!(frame[place.within] == bytes[..]);
    }
}
