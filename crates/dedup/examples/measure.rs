//! Pushes files into a store in a temporary directory, takes them apart, restores them, and prints figures:
//! `cargo run --release -p xebec-dedup --example dedup-measure -- [--chunks files|contents] [--level N] [--space] [--records FILE] FILE…`.
//!
//! A line for each file: megabytes as pushed, and plain; seconds and megabytes of plain bytes a second of taking apart (with packing and storing) and of the
//! proof, and the processors' seconds of both; the same of restoring with cold caches and again with warm ones; milliseconds to the first 64 KiB,
//! with cold caches. While others use the machine, the processors' seconds say more. Cold: a restorer with
//! nothing in memory, and objects that the system was told to drop from its own. `--space` leaves restoring out, and no thread gives way. Then what all
//! files together take, and the peak memory of this process, in which the files are not. `--so-far NAME` among the files prints what those before it take
//! together. `--records` leaves a copy of the database.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Failure, World};
use futures_util::StreamExt as _;
use xebec_dedup::{Cutting, Done, Restorer, Settings};
use xebec_store::{Blob, Restore as _, Space};

/// So many bytes are a beginning.
const FIRST: u64 = 64 << 10;

struct Options {
    settings: Settings,
    is_space_only: bool,
    records: Option<String>,
    steps: Vec<Step>,
}

/// What is done one after the other.
enum Step {
    File(String),
    /// The space so far is printed under this name.
    SoFar(String),
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        settings: Settings::default(),
        is_space_only: false,
        records: None,
        steps: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--chunks" => match arguments.next().as_deref() {
                Some("files") => options.settings.cutting = Cutting::Files,
                Some("contents") => options.settings.cutting = Cutting::Contents,
                other => return Err(format!("--chunks is files or contents, not {other:?}").into()),
            },
            "--level" => {
                options.settings.level = arguments.next().ok_or("--level needs a number")?.parse()?
            }
            "--space" => {
                options.is_space_only = true;
                options.settings.gives_way = false;
            }
            "--records" => options.records = Some(arguments.next().ok_or("--records needs a file")?),
            "--so-far" => {
                let name = arguments.next().ok_or("--so-far needs a name")?;
                options.steps.push(Step::SoFar(name));
            }
            _ => options.steps.push(Step::File(argument)),
        }
    }
    match options.steps.is_empty() {
        true => Err("no files were given".into()),
        false => Ok(options),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // As the registry does.
    xebec_kernel::memory::share_arenas();
    let options = options()?;
    let world = World::new(&options.settings).await?;
    println!(
        "{:24} {:>8} {:>8} {:>14} {:>14} {:>7} {:>14} {:>7} {:>14} {:>7} {:>9}",
        "file",
        "MB",
        "plain",
        "apart s, MB/s",
        "proof s, MB/s",
        "cpu s",
        "cold s, MB/s",
        "cpu s",
        "warm s, MB/s",
        "cpu s",
        "first ms"
    );
    for step in &options.steps {
        match step {
            Step::File(path) => {
                let line = one(&world, &options, path).await?;
                let name = path.rsplit('/').next().unwrap_or(path);
                println!("{:24} {line}", name.get(..24).unwrap_or(name));
            }
            Step::SoFar(name) => so_far(name, &world.store.space().await?),
        }
    }
    let space = world.store.space().await?;
    sums(&space, world.records(options.records.as_deref())?);
    println!("peak memory {} MiB", common::peak_mib());
    Ok(())
}

/// Pushes a file, takes it apart and restores it.
async fn one(world: &World, options: &Options, path: &str) -> Result<String, Failure> {
    let blob = world.push_file(path).await?;
    let (spent_before, cpu_before) = (world.deduplicator.spent(), cpu());
    let Some((_, done)) = world.deduplicator.work_once().await? else {
        return Ok(format!(
            "{:>8.1} known already, or too small",
            megabytes(blob.size)
        ));
    };
    let (spent, cpu_after) = (world.deduplicator.spent(), cpu());
    if done != Done::Recorded {
        return Ok(format!("{:>8.1} {done:?}", megabytes(blob.size)));
    }
    let plain = world
        .store
        .recipe(&blob.digest)
        .await?
        .map_or(0, |recipe| recipe.plain);
    let mut line = format!(
        "{:>8.1} {:>8.1} {} {} {:>7.2}",
        megabytes(blob.size),
        megabytes(plain),
        speed(plain, spent.taking_apart - spent_before.taking_apart),
        speed(plain, spent.proof - spent_before.proof),
        (cpu_after - cpu_before).as_secs_f64()
    );
    if options.is_space_only {
        return Ok(line);
    }
    world.collect().await?;
    world.forget_pages();
    let restorer = Arc::new(Restorer::new(&options.settings));
    let before = cpu();
    let (first, cold) = restore(world, &restorer, &blob).await?;
    let between = cpu();
    let (_, warm) = restore(world, &restorer, &blob).await?;
    let after = cpu();
    let frames = restorer.figures().frames;
    line += &format!(
        " {} {:>7.2} {} {:>7.2} {:>9.1}  frames decoded {}, found {}",
        speed(plain, cold),
        (between - before).as_secs_f64(),
        speed(plain, warm),
        (after - between).as_secs_f64(),
        first.as_secs_f64() * 1e3,
        frames.missed,
        frames.hit + frames.waited
    );
    Ok(line)
}

/// Restores a blob. Returns the times until its first 64 KiB and all of it are there: the very first bytes are a head, which needs no file.
async fn restore(world: &World, restorer: &Restorer, blob: &Blob) -> Result<(Duration, Duration), Failure> {
    let begun = Instant::now();
    let mut stream = restorer.read(&world.store, blob, 0..blob.size).await?;
    let (mut first, mut size) = (None, 0);
    while let Some(piece) = stream.next().await {
        size += piece?.len() as u64;
        if size >= FIRST {
            first.get_or_insert_with(|| begun.elapsed());
        }
    }
    match size == blob.size {
        true => Ok((first.unwrap_or(begun.elapsed()), begun.elapsed())),
        false => Err(format!("{size} bytes came instead of {}", blob.size).into()),
    }
}

/// Bytes of what was pushed so far, its plain bytes, and what is kept of them.
fn so_far(name: &str, space: &Space) {
    println!(
        "so far {name} {} {} {} {} {}",
        space.blob_bytes,
        space.plain_bytes,
        space.chunk_bytes,
        space.pack_bytes + space.intact_bytes,
        space.recipe_bytes
    );
}

fn sums(space: &Space, (database, log): (u64, u64)) {
    let share = |bytes: u64| bytes as f64 / space.blob_bytes.max(1) as f64;
    let after = space.pack_bytes + space.recipe_bytes + space.intact_bytes;
    println!(
        "distinct blobs {}, pushed {:.1} MB, plain {:.1} MB",
        space.blobs,
        megabytes(space.blob_bytes),
        megabytes(space.plain_bytes)
    );
    println!(
        "packs {} of {:.1} MB with {} chunks of {:.1} MB; recipes {} of {:.2} MB; intact {} of {:.1} MB",
        space.packs,
        megabytes(space.pack_bytes),
        space.chunks,
        megabytes(space.chunk_bytes),
        space.recipes,
        megabytes(space.recipe_bytes),
        space.intact,
        megabytes(space.intact_bytes)
    );
    println!(
        "of what was pushed: all {:.3}, packs {:.3}, intact {:.3}; recipes {:.2} %, database {:.2} % ({:.2} MB, beside it a log of {:.2} MB)",
        share(after),
        share(space.pack_bytes),
        share(space.intact_bytes),
        100.0 * share(space.recipe_bytes),
        100.0 * share(database),
        megabytes(database),
        megabytes(log)
    );
    for (why, count) in &space.kept {
        println!("{count} stay intact: {why}");
    }
}

fn speed(plain: u64, time: Duration) -> String {
    format!(
        "{:>7.2} {:>6.0}",
        time.as_secs_f64(),
        megabytes(plain) / time.as_secs_f64()
    )
}

/// The time that processors have spent on this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or_default(),
        time.tv_nsec.try_into().unwrap_or_default(),
    )
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
