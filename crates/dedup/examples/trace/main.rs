//! Plays requests of many clients against deduplicated layers, and prints how often a layer had been restored before it was asked for, and how long layers take:
//! `cargo run --release -p xebec-dedup --example dedup-trace -- [--requests 10000] [--seconds 60] [--rooms 5,10,20,40] [--simulate]`.
//!
//! First the policies of eviction, played through the same trace without restoring anything (with `--simulate` only these). Then the trace in real time: against intact layers, against
//! deduplicated ones with room for a part of all bytes as restored files, and without. A latency is that of a whole layer, from the request to its last byte, in this
//! process, without a network.

#[path = "../common/mod.rs"]
mod common;
mod policies;
mod workload;

use std::time::{Duration, Instant};

use common::{Failure, World};
use futures_util::StreamExt as _;
use policies::{Arc as ArcPolicy, Coming, Lru, S3Fifo, Simulated};
use workload::{Event, Request};
use xebec_dedup::{Done, Figures, Restorer, Settings};
use xebec_store::{Blob, Restore as _, Store};
use xebec_testkit::corpus::Numbers;

struct Options {
    requests: usize,
    seconds: u64,
    rooms: Vec<u64>,
    is_simulation: bool,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        requests: 10_000,
        seconds: 60,
        rooms: vec![5, 10, 20, 40],
        is_simulation: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--simulate" {
            options.is_simulation = true;
            continue;
        }
        let value = arguments.next().ok_or("a value is missing")?;
        match argument.as_str() {
            "--requests" => options.requests = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--rooms" => options.rooms = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            other => return Err(format!("{other} is no option").into()),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let options = options()?;
    let mut numbers = Numbers(24);
    let (images, layers) = workload::images(&mut numbers);
    let span = Duration::from_secs(options.seconds);
    let events = workload::requests(&images, options.requests, span, &mut numbers);
    let world = World::new(&Settings::default()).await?;
    let mut intact = Vec::new();
    for number in 0..layers {
        intact.push(world.push_bytes(workload::layer(number)?.into()).await?);
    }
    let sizes: Vec<u64> = intact.iter().map(|blob| blob.size).collect();
    let bytes: u64 = sizes.iter().sum();
    let asked = events
        .iter()
        .filter(|event| matches!(event.request, Request::Layer(_)))
        .count();
    println!(
        "{layers} layers of {:.1} MB; {} requests in {} s, of layers {asked}",
        bytes as f64 / 1e6,
        events.len(),
        options.seconds
    );
    simulate(&events, &sizes, bytes, &options.rooms);
    if options.is_simulation {
        return Ok(());
    }

    println!(
        "{:22} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9}  milliseconds",
        "", "hit", "wait", "miss", "p50", "p95", "p99"
    );
    replay("intact", &world.store, None, &intact, &events).await?;
    let begun = Instant::now();
    while let Some((blob, done)) = world.deduplicator.work_once().await? {
        if done != Done::Recorded {
            return Err(format!("{}: {done:?}", blob.digest).into());
        }
    }
    world.collect().await?;
    let taken = begun.elapsed();
    let mut apart = Vec::new();
    for blob in &intact {
        apart.push(world.blob(&blob.digest).await?);
    }
    for room in &options.rooms {
        let directory = world.directory.path().join(format!("restored-{room}"));
        let restorer = Restorer::with_files(&Settings::default(), &directory, bytes * room / 100)?;
        let ahead = tokio::spawn(restorer.clone().prefetch(world.store.clone()));
        replay(
            &format!("room for {room} %"),
            &world.store,
            Some(&restorer),
            &apart,
            &events,
        )
        .await?;
        ahead.abort();
    }
    let restorer = Restorer::new(&Settings::default());
    replay(
        "restored when asked",
        &world.store,
        Some(&restorer),
        &apart,
        &events,
    )
    .await?;
    println!(
        "taken apart and proven in {:.1} s; peak memory {} MiB",
        taken.as_secs_f64(),
        common::peak_mib()
    );
    Ok(())
}

/// Prints the parts of requests that each policy has the layer for.
fn simulate(events: &[Event], sizes: &[u64], bytes: u64, rooms: &[u64]) {
    println!(
        "{:28} {}",
        "hits by simulation",
        rooms
            .iter()
            .map(|room| format!("{room:>6} %"))
            .collect::<String>()
    );
    for (coming, how) in [
        (Coming::Ahead, "restored ahead"),
        (Coming::Asked, "restored when asked"),
    ] {
        for name in ["S3-FIFO", "LRU", "ARC"] {
            let mut line = String::new();
            for room in rooms {
                let room = bytes * room / 100;
                let mut cache: Box<dyn Simulated> = match name {
                    "LRU" => Box::new(Lru::new(room)),
                    "ARC" => Box::new(ArcPolicy::new(room)),
                    _ => Box::new(S3Fifo::new(room)),
                };
                line += &format!("{:>8.3}", policies::play(events, sizes, cache.as_mut(), coming));
            }
            println!("{:28} {line}", format!("{name}, {how}"));
        }
    }
}

/// Plays the trace in real time, and prints a line.
async fn replay(
    name: &str,
    store: &Store,
    restorer: Option<&Restorer>,
    blobs: &[Blob],
    events: &[Event],
) -> Result<(), Failure> {
    let begun = Instant::now();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for event in events {
        tokio::time::sleep_until((begun + event.at).into()).await;
        let client = event.client.to_string();
        match (&event.request, restorer) {
            (Request::Manifest(layers), Some(restorer)) => {
                let digests = layers.iter().map(|layer| blobs[*layer].digest.clone());
                let lacking = restorer.lacking(&client, digests.collect());
                for layer in layers.iter().map(|layer| &blobs[*layer]) {
                    if lacking.contains(&layer.digest) {
                        restorer.expect(layer.clone());
                    }
                }
            }
            (Request::Manifest(_), None) => {}
            (Request::Layer(layer), restorer) => {
                let (store, restorer, blob, tell) = (
                    store.clone(),
                    restorer.cloned(),
                    blobs[*layer].clone(),
                    tell.clone(),
                );
                tokio::spawn(async move {
                    let _ = tell.send(fetch(&store, restorer, &blob, &client).await);
                });
            }
        }
    }
    drop(tell);
    let mut times = Vec::new();
    while let Some(time) = told.recv().await {
        times.push(time?);
    }
    times.sort_unstable();
    let figures = restorer.map(Restorer::figures).unwrap_or_default();
    println!("{name:22} {} {}", shares(&figures), percentiles(&times));
    Ok(())
}

async fn fetch(
    store: &Store,
    restorer: Option<Restorer>,
    blob: &Blob,
    client: &str,
) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let mut stream = match &restorer {
        Some(restorer) => {
            restorer.note_pull(client, &blob.digest);
            restorer.read(store, blob, 0..blob.size).await?
        }
        None => store.read(blob, 0..blob.size).await?,
    };
    let mut size = 0;
    while let Some(piece) = stream.next().await {
        size += piece?.len() as u64;
    }
    match size == blob.size {
        true => Ok(begun.elapsed()),
        false => Err("a layer came with another length".into()),
    }
}

fn shares(figures: &Figures) -> String {
    let blobs = figures.blobs;
    let all = (blobs.hit + blobs.waited + blobs.missed) as f64;
    match all > 0.0 {
        true => [blobs.hit, blobs.waited, blobs.missed]
            .map(|count| format!("{:>7.3}", count as f64 / all))
            .join(" "),
        false => format!("{:>7} {:>7} {:>7}", "", "", ""),
    }
}

fn percentiles(times: &[Duration]) -> String {
    let at = |part: f64| {
        times
            .get((times.len() as f64 * part) as usize)
            .copied()
            .unwrap_or_default()
    };
    [0.5, 0.95, 0.99]
        .map(|part| format!("{:>9.2}", at(part).as_secs_f64() * 1e3))
        .join(" ")
}
