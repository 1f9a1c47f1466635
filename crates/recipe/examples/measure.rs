//! Cuts tar files, packs their chunks, and prints how long that takes and how many bytes come out:
//! `cargo run --release --package xebec-recipe --example measure -- [--level N] [--frame BYTES] [--content] [--quick] TAR…`

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use xebec_recipe::{
    Blob, ChunkId, Cutter, FromEnd, Limits, Options, Pack, PackIndex, PackWriter, Part, Piece, Recipe,
    RecipeBuilder, Splitter,
};

type Failure = Box<dyn std::error::Error>;

/// Plain bytes after which a pack is made.
const PACK: u64 = 32 << 20;

/// What the arguments say.
struct Wanted {
    options: Options,
    cutter: Cutter,
    files: Vec<String>,
    /// Whether the file is not compressed as a whole, to compare with.
    is_quick: bool,
}

fn wanted() -> Result<Wanted, Failure> {
    let mut wanted = Wanted {
        options: Options::default(),
        cutter: Cutter::Files,
        files: Vec::new(),
        is_quick: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--level" => wanted.options.level = arguments.next().unwrap_or_default().parse()?,
            "--frame" => wanted.options.frame_size = arguments.next().unwrap_or_default().parse()?,
            "--quick" => wanted.is_quick = true,
            "--content" => wanted.cutter = Cutter::CONTENT,
            _ => wanted.files.push(argument),
        }
    }
    Ok(wanted)
}

/// A file, packed.
struct Packed {
    recipe: Recipe,
    packs: Vec<Pack>,
    /// Seconds of splitting and digests, and of packing.
    seconds: [f64; 2],
}

fn pack(plain: &[u8], wanted: &Wanted) -> Result<Packed, Failure> {
    let mut builder = RecipeBuilder::new(Limits::default());
    let mut writer = PackWriter::new(wanted.options);
    let (mut packs, mut known, mut seconds) = (Vec::new(), HashSet::new(), [0.0; 2]);
    let mut problem: Option<Failure> = None;
    let mut splitter = Splitter::new(wanted.cutter);
    let mut take = |piece: Piece<'_>| -> Result<(), Failure> {
        let id = builder.add(piece)?;
        if let (Some(id), Piece::Chunk { bytes, hint }) = (id, piece)
            && known.insert(id)
        {
            writer.add(id, bytes, hint)?;
            if writer.plain_bytes() >= PACK {
                let full = std::mem::replace(&mut writer, PackWriter::new(wanted.options));
                let began = Instant::now();
                packs.push(full.finish()?);
                seconds[1] += began.elapsed().as_secs_f64();
            }
        }
        Ok(())
    };
    let mut sink = |piece: Piece<'_>| {
        if let Err(failure) = take(piece) {
            problem.get_or_insert(failure);
        }
    };
    let began = Instant::now();
    for piece in plain.chunks(256 << 10) {
        splitter.write(piece, &mut sink);
    }
    splitter.finish(&mut sink);
    let recipe = builder.finish(
        Blob {
            digest: ChunkId::of(b"").to_string(),
            size: 0,
        },
        Vec::new(),
    )?;
    seconds[0] = began.elapsed().as_secs_f64() - seconds[1];
    let began = Instant::now();
    packs.push(writer.finish()?);
    seconds[1] += began.elapsed().as_secs_f64();
    problem.map_or(
        Ok(Packed {
            recipe,
            packs,
            seconds,
        }),
        Err,
    )
}

/// Seconds of reading all chunks of a pack into `chunks`, each checked.
fn read_all(pack: &Pack, chunks: &mut HashMap<ChunkId, Vec<u8>>) -> Result<f64, Failure> {
    let began = Instant::now();
    let FromEnd::Index(index) = PackIndex::from_end(&pack.bytes, pack.bytes.len() as u64)? else {
        return Err("a whole pack is not enough".into());
    };
    let mut frame = (u32::MAX, Vec::new());
    for (id, place) in index.chunks() {
        if frame.0 != place.frame_number {
            let range = place.frame.start as usize..place.frame.end as usize;
            let compressed = pack.bytes.get(range).ok_or("no such frame")?;
            frame = (place.frame_number, index.decode(place.frame_number, compressed)?);
        }
        let chunk = frame.1.get(place.within).unwrap_or_default();
        if ChunkId::of(chunk) != id {
            return Err("another chunk".into());
        }
        chunks.insert(id, chunk.to_vec());
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Whether a recipe and these chunks make these plain bytes.
fn makes(recipe: &Recipe, chunks: &HashMap<ChunkId, Vec<u8>>, mut plain: &[u8]) -> bool {
    for part in recipe.parts() {
        let Some((own, rest)) = plain.split_at_checked(part.length() as usize) else {
            return false;
        };
        let is_same = match part {
            Part::Inline(bytes) => bytes == own,
            Part::Zeros(_) => own.iter().all(|&byte| byte == 0),
            Part::Chunk { id, .. } => chunks.get(&id).is_some_and(|chunk| chunk == own),
        };
        if !is_same {
            return false;
        }
        plain = rest;
    }
    plain.is_empty()
}

fn measure(name: &str, wanted: &Wanted) -> Result<(), Failure> {
    let mut plain = Vec::new();
    std::fs::File::open(name)?.read_to_end(&mut plain)?;
    let packed = pack(&plain, wanted)?;
    let began = Instant::now();
    let recipe = packed.recipe.to_bytes();
    let writing = began.elapsed().as_secs_f64();
    let again = Recipe::from_bytes(&recipe, &Limits::default())?;
    if again != packed.recipe {
        return Err("the recipe does not come back".into());
    }
    let files = packed.recipe.parts().len() as f64 / 2.0;
    let ids = 32 * packed.recipe.chunks().len();
    let packs: usize = packed.packs.iter().map(|pack| pack.bytes.len()).sum();
    let (mut reading, mut chunks) = (0.0, HashMap::new());
    for pack in &packed.packs {
        reading += read_all(pack, &mut chunks)?;
    }
    if !makes(&again, &chunks, &plain) {
        return Err("the recipe makes other bytes".into());
    }
    let (gzip, zstd) = match wanted.is_quick {
        true => (plain.len(), plain.len()),
        false => (gzip_of(&plain)?, zstd_of(&plain, wanted.options.level)?),
    };
    let size = plain.len() as f64;
    let percent = |bytes: usize| 100.0 * bytes as f64 / size;
    println!(
        "{name}: {} bytes, {} parts, {} distinct chunks",
        plain.len(),
        packed.recipe.parts().len(),
        packed.recipe.chunks().len()
    );
    println!(
        "  recipe {} bytes ({:.3} % of plain, {:.3} % of gzip), {:.1} a file without ids; frame {} bytes plain; written in {writing:.2} s",
        recipe.len(),
        percent(recipe.len()),
        100.0 * recipe.len() as f64 / gzip as f64,
        (recipe.len() - ids) as f64 / files,
        packed.recipe.inline_size()
    );
    println!(
        "  {} packs {packs} bytes ({:.2} %), with recipe {:.2} %; gzip -6 {:.2} %, zstd -{} {:.2} %",
        packed.packs.len(),
        percent(packs),
        percent(packs + recipe.len()),
        percent(gzip),
        wanted.options.level,
        percent(zstd)
    );
    let speed = |seconds: f64| size / seconds / 1e6;
    println!(
        "  split and digest {:.0} MB/s, pack {:.1} MB/s, read and check {:.0} MB/s",
        speed(packed.seconds[0]),
        speed(packed.seconds[1]),
        speed(reading)
    );
    Ok(())
}

fn gzip_of(plain: &[u8]) -> Result<usize, Failure> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(6));
    gzip.write_all(plain)?;
    Ok(gzip.finish()?.len())
}

fn zstd_of(plain: &[u8], level: i32) -> Result<usize, Failure> {
    Ok(zstd::bulk::compress(plain, level)?.len())
}

fn main() -> Result<(), Failure> {
    let wanted = wanted()?;
    wanted.files.iter().try_for_each(|name| measure(name, &wanted))
}
