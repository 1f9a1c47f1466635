//! A process that reads pages at random through the guarded mount, and checks each.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Sparse files that are read.
pub const FILES: u64 = 3;
/// Pages of each. So many that most reads of a run are of a page that was never filled before.
pub const PAGES: u64 = 262_144;
/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Every 8-byte word of a page is its own, and none is zero.
pub fn pattern(file: u64, page: u64) -> [u8; PAGE] {
    let first = (page + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (file + 1);
    let mut bytes = [0; PAGE];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(first.wrapping_add(index as u64) | 1).to_ne_bytes());
    }
    bytes
}

/// The file that a reader leaves its counts in: reads, wrong ones, errors, the longest in microseconds; 8 bytes each.
pub fn tally(directory: &Path, seed: u64) -> PathBuf {
    directory.join(format!("reader-{seed}"))
}

/// Where the files are, by the guarded path.
pub fn guarded(directory: &Path, file: u64) -> PathBuf {
    directory.join("run/guarded").join(format!("data{file}"))
}

pub fn main(directory: &Path, seed: &str) -> ExitCode {
    let seed: u64 = seed.parse().unwrap();
    let files: Vec<File> = (0..FILES)
        .map(|file| File::open(guarded(directory, file)).unwrap())
        .collect();
    let tally = File::create(tally(directory, seed)).unwrap();
    let (mut reads, mut wrong, mut errors, mut worst) = (0u64, 0u64, 0u64, 0u64);
    let mut state = seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    loop {
        // Xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (file, page) = (state % FILES, state / FILES % PAGES);
        let mut bytes = [0; PAGE];
        let started = Instant::now();
        match files[file as usize].read_exact_at(&mut bytes, page * PAGE as u64) {
            Ok(()) if bytes == pattern(file, page) => {}
            Ok(()) => wrong += 1,
            Err(_) => errors += 1,
        }
        reads += 1;
        worst = worst.max(started.elapsed().as_micros() as u64);
        for (index, count) in [reads, wrong, errors, worst].iter().enumerate() {
            tally
                .write_all_at(&count.to_ne_bytes(), index as u64 * 8)
                .unwrap();
        }
    }
}
