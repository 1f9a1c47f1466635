//! Takes compressed files apart, makes them again, compares, and prints a line for each: `cargo run --release --example measure FILE…`.
//!
//! Columns: the name; bytes of the stream; plain bytes; the part of the stream, in percent, that encoders make, that corrected predictions make, and that is
//! kept as it is; bytes of the description in percent of the stream; slices; megabytes of plain bytes a second of one processor for taking
//! apart and for restoring; the processes' peak memory so far in MiB. A file that is refused gets its reason.

use std::time::Instant;

use xebec_recompress::{Limits, Restorer, TakeApart};

const LIMITS: Limits = Limits { plain: 16 << 30 };
const PIECE: usize = 1 << 20;

fn main() -> std::io::Result<()> {
    println!(
        "{:28} {:>10} {:>11} {:>6} {:>6} {:>6} {:>8} {:>6} {:>6} {:>7} {:>5}  made by",
        "stream", "bytes", "plain", "exact", "corr.", "kept", "descr. %", "slices", "apart", "restore", "MiB"
    );
    for path in std::env::args().skip(1) {
        let stream = std::fs::read(&path)?;
        let name = path.rsplit('/').next().unwrap_or(&path);
        match line(&stream) {
            Ok(line) => println!("{name:28} {line}"),
            Err(reason) => println!("{name:28} {:>10} refused: {reason}", stream.len()),
        }
    }
    Ok(())
}

fn line(stream: &[u8]) -> Result<String, String> {
    let mut plain = Vec::new();
    let began = Instant::now();
    let mut take_apart = TakeApart::new(LIMITS);
    for piece in stream.chunks(PIECE) {
        take_apart
            .write(piece, &mut |bytes| plain.extend_from_slice(bytes))
            .map_err(|refusal| refusal.to_string())?;
    }
    let description = take_apart
        .finish(&mut |bytes| plain.extend_from_slice(bytes))
        .map_err(|refusal| refusal.to_string())?;
    let apart = began.elapsed();

    let began = Instant::now();
    let mut restored = Vec::with_capacity(stream.len());
    let mut restorer = Restorer::new(&description);
    for piece in plain.chunks(PIECE) {
        restorer
            .write(piece, &mut restored)
            .map_err(|error| error.to_string())?;
    }
    restorer
        .finish(&mut restored)
        .map_err(|error| error.to_string())?;
    let restore = began.elapsed();
    if restored != stream {
        return Err("ANOTHER STREAM CAME BACK".to_owned());
    }

    let shares = description.shares();
    let of_stream = |bytes: u64| 100.0 * bytes as f64 / stream.len() as f64;
    let speed = |time: std::time::Duration| plain.len() as f64 / 1e6 / time.as_secs_f64();
    let methods: Vec<String> = shares.methods.iter().map(|method| method.to_string()).collect();
    Ok(format!(
        "{:>10} {:>11} {:>6.2} {:>6.2} {:>6.2} {:>8.4} {:>6} {:>6.0} {:>7.0} {:>5}  {}",
        stream.len(),
        plain.len(),
        of_stream(shares.encoder),
        of_stream(shares.corrected),
        of_stream(shares.kept),
        of_stream(description.to_bytes().len() as u64),
        description.places().len(),
        speed(apart),
        speed(restore),
        peak_mib(),
        methods.join(", "),
    ))
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}
