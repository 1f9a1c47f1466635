//! How fast a gzip layer is indexed, next to what `soci ztoc` does: one thread, zlib, block by block, a window
//! kept at every access point, each span hashed.
//!
//! Usage: `bench_index LAYER.tar.gz [RUNS]`. Both are run in turn on the same bytes, RUNS times (7 if not said).
//! Prints plain MB/s (10^6 bytes) as median and spread, the processor time of all threads per MB, the ratio of the
//! medians, and the sizes of the results. (On a machine that does other things the processor time says more.) Other
//! zlib-based indexers compress their windows as well; that is left out here, in their favour, while ours is timed with
//! everything.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use flate2::{Decompress, FlushDecompress, Status};
use xebec_format::digest::{Digest, Digester};
use xebec_index::decode::decode_span;
use xebec_index::fuzzing::verify;
use xebec_index::indexer::{IndexOptions, IndexedLayer, SPACING, index_layer};
use xebec_index::inflate::{Decoder, HISTORY, Input, OUTPUT_SLACK, Output, Stop};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .context("usage: bench_index LAYER.tar.gz [RUNS]")?;
    let runs: usize = arguments.next().map_or(Ok(7), |runs| runs.parse())?;
    let blob = std::fs::read(&path).with_context(|| format!("read {path}"))?;
    let layer = index_layer(&blob[..], &IndexOptions::default(), None)?;
    verify(&blob, &layer);
    let plain = layer.index.plain_size;

    let mut rates = [const { Vec::new() }; 6];
    for _ in 0..runs {
        rates[0].push(rate(plain, || {
            Ok(index_layer(&blob[..], &IndexOptions::default(), None).map(drop)?)
        })?);
        rates[1].push(rate(plain, || zlib_index(&blob, plain))?);
        rates[2].push(rate(plain, || our_inflate(&blob, plain))?);
        rates[3].push(rate(plain, || zlib_inflate(&blob, plain))?);
        rates[4].push(rate(layer.index.data_size, || decode_all(&blob, &layer))?);
        rates[5].push(rate(blob.len() as u64, || {
            std::hint::black_box(Digest::of(&blob));
            Ok(())
        })?);
    }
    let names = [
        "xebec index",
        "zlib index (soci ztoc style)",
        "xebec inflate",
        "zlib inflate",
        "decode spans",
        "sha256",
    ];
    let mut medians = Vec::new();
    for (name, rates) in names.iter().zip(&mut rates) {
        let mut busy: Vec<f64> = rates.iter().map(|rate: &Rate| rate.busy).collect();
        busy.sort_by(f64::total_cmp);
        let mut wall: Vec<f64> = rates.iter().map(|rate| rate.wall).collect();
        wall.sort_by(f64::total_cmp);
        let (low, median, high) = (wall[0], wall[runs / 2], wall[runs - 1]);
        let busy = busy[runs / 2];
        println!(
            "{name:30} {median:6.0} MB/s  ({low:.0} to {high:.0}, {runs} runs)  {busy:5.2} ms of processor/MB"
        );
        medians.push(median);
    }
    println!("ratio of index to zlib index   {:6.2}", medians[0] / medians[1]);
    println!("ratio of inflate to zlib       {:6.2}", medians[2] / medians[3]);
    println!(
        "layer {} bytes, plain {plain}; {} entries, {} spans; index {}, windows {}, frame {}, contents {} bytes",
        blob.len(),
        layer.index.entries.len(),
        layer.index.spans.len(),
        layer.index.encode().len(),
        layer.windows.len(),
        layer.frame.len(),
        layer.contents.len(),
    );
    Ok(())
}

struct Rate {
    /// MB per second by the clock.
    wall: f64,
    /// Milliseconds of processor time per MB, all threads together.
    busy: f64,
}

fn rate(bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<Rate> {
    let megabytes = bytes as f64 / 1e6;
    let (start, busy) = (Instant::now(), processor_time()?);
    work()?;
    let (wall, busy) = (start.elapsed().as_secs_f64(), processor_time()? - busy);
    Ok(Rate {
        wall: megabytes / wall,
        busy: busy * 1e3 / megabytes,
    })
}

/// Seconds of processor time that this process has used in user space (`utime` of proc_pid_stat(5), whose unit is
/// 1/100 s on every usual system).
fn processor_time() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = fields
        .split_whitespace()
        .nth(11)
        .context("/proc/self/stat is short")?
        .parse()?;
    Ok(ticks / 100.0)
}

/// Calls `plain` with each part of the plain stream that zlib yields.
fn with_zlib(blob: &[u8], mut plain: impl FnMut(&[u8])) -> Result<()> {
    let header = xebec_index::gzip::header_length(blob);
    let Ok(Some(header)) = header else {
        anyhow::bail!("no gzip header: {header:?}")
    };
    let mut zlib = Decompress::new(false);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (read, written) = (zlib.total_in() as usize, zlib.total_out());
        let status = zlib.decompress(&blob[header + read..], &mut buffer, FlushDecompress::None)?;
        plain(&buffer[..(zlib.total_out() - written) as usize]);
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}

/// One thread: inflate, hash each span, keep 32 KiB at each access point.
fn zlib_index(blob: &[u8], expected: u64) -> Result<()> {
    let mut digest = Digester::new();
    let (mut digests, mut windows) = (Vec::new(), Vec::new());
    let (mut total, mut cut) = (0, SPACING);
    with_zlib(blob, |plain| {
        digest.update(plain);
        total += plain.len() as u64;
        if total >= cut {
            cut = total + SPACING;
            windows.push(plain[plain.len().saturating_sub(HISTORY)..].to_vec());
            digests.push(std::mem::take(&mut digest).finish());
        }
    })?;
    std::hint::black_box((digests, windows));
    ensure!(total == expected, "zlib made {total} bytes");
    Ok(())
}

fn zlib_inflate(blob: &[u8], expected: u64) -> Result<()> {
    let mut total = 0;
    with_zlib(blob, |plain| total += plain.len() as u64)?;
    ensure!(total == expected, "zlib made {total} bytes");
    Ok(())
}

fn our_inflate(blob: &[u8], expected: u64) -> Result<()> {
    let Ok(Some(position)) = xebec_index::gzip::header_length(blob) else {
        anyhow::bail!("no gzip header")
    };
    let mut decoder = Decoder::new();
    let mut input = Input {
        bytes: blob,
        position,
        last: true,
    };
    let mut buffer = vec![0; HISTORY + (256 << 10) + OUTPUT_SLACK];
    let (mut position, mut total) = (0, 0);
    loop {
        let limit = buffer.len() - OUTPUT_SLACK;
        let mut output = Output {
            bytes: &mut buffer,
            position,
            history: 0,
            limit,
            references: None,
        };
        let stop = decoder.run(&mut input, &mut output)?;
        total += (output.position - position) as u64;
        position = output.position;
        match stop {
            Stop::Output => {
                buffer.copy_within(position - HISTORY..position, 0);
                position = HISTORY;
            }
            Stop::Block => {}
            Stop::End | Stop::Input => break,
        }
    }
    ensure!(
        total == expected,
        "ours made {total} bytes (the layer must be one member)"
    );
    Ok(())
}

fn decode_all(blob: &[u8], layer: &IndexedLayer) -> Result<()> {
    for span in &layer.index.spans {
        let source = &blob[span.source.start as usize..span.source.end as usize];
        let window = span.window.as_ref();
        let window = window.map(|w| &layer.windows[w.offset as usize..][..w.length as usize]);
        decode_span(layer.index.codec, span, &layer.index.pieces, source, window)?;
    }
    Ok(())
}
