//! Helpers that the tests of this crate share: data that compresses in different ways, tar archives, and encoders.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A small generator of numbers that look random, the same on every run.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// `length` bytes of a mixture: text-like, incompressible, runs, and copies from far back.
pub fn mixture(seed: u64, length: usize) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    let mut bytes = Vec::with_capacity(length + 70_000);
    while bytes.len() < length {
        let run = 1 + numbers.below(3000);
        match numbers.below(6) {
            0 => (0..run).for_each(|_| bytes.push(numbers.next() as u8)),
            1 => bytes.extend(std::iter::repeat_n(numbers.next() as u8, run * 3)),
            2 if !bytes.is_empty() => {
                let back = 1 + numbers.below(bytes.len().min(40_000));
                for _ in 0..run {
                    bytes.push(bytes[bytes.len() - back]);
                }
            }
            _ => {
                for _ in 0..run / 4 {
                    let word = numbers.below(300);
                    bytes.extend_from_slice(format!("{} ", word * word).as_bytes());
                }
            }
        }
    }
    bytes.truncate(length);
    bytes
}

/// One ustar header.
fn header(name: &str, size: usize, kind: u8) -> [u8; 512] {
    let mut block = [0u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"14000000000\0");
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A tar archive of these files.
pub fn tar_of<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut tar = header("dir/", 0, b'5').to_vec();
    for (name, contents) in files {
        tar.extend_from_slice(&header(name, contents.len(), b'0'));
        tar.extend_from_slice(contents);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize((tar.len() + 1024).next_multiple_of(10240), 0);
    tar
}

/// A tar archive of about `size` bytes: large files, small files, empty ones.
pub fn sample_tar(seed: u64, size: usize) -> Vec<u8> {
    let mut numbers = Numbers::new(seed ^ 77);
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut total = 0;
    while total < size {
        let length = match numbers.below(5) {
            0 => 0,
            1 => numbers.below(200),
            2 => numbers.below(size / 3),
            _ => numbers.below(20_000),
        };
        total += length + 512;
        files.push((
            format!("dir/file-{}", files.len()),
            mixture(numbers.next(), length),
        ));
    }
    tar_of(
        files
            .iter()
            .map(|(name, contents)| (name.as_str(), contents.as_slice())),
    )
}

/// gzip by zlib.
pub fn gzip(plain: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Raw deflate by zlib.
pub fn deflate(plain: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// The standard output of a program for this standard input; `None`, with a word of why, if the program is not
/// there.
pub fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("SKIPPED {program}: {error}");
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{program} {arguments:?} failed");
    Some(output.stdout)
}

/// Builds a Go program of one file; `None`, with a word of why, if that cannot be done here.
pub fn build_go(source: &str, directory: &Path) -> Option<String> {
    let file = directory.join("main.go");
    let binary = directory.join("program");
    std::fs::write(&file, source).unwrap();
    let go = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| {
        Command::new(go)
            .arg("version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    });
    let Some(go) = go else {
        println!("SKIPPED Go: no go command");
        return None;
    };
    let status = Command::new(go)
        .arg("build")
        .arg("-o")
        .arg(&binary)
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success(), "go build failed");
    Some(binary.to_str().unwrap().to_owned())
}
