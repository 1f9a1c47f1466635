//! How much memory streams take that keep the most of it. A process of its own reads each, and tells how much it had at most.

use std::process::Command;

use xebec_bitstream::BitWriter;
use xebec_recompress::{Limits, TakeApart};

/// The child reads this stream.
const WHICH: &str = "XEBEC_TEST_MEMORY_OF";
/// What a process has without a stream, in MiB: less than this.
const IDLE: u64 = 30;

/// A zstd frame with a window of 128 MiB and more plain bytes than that.
fn large_window() -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x88];
    for _ in 0..3_000 {
        frame.extend_from_slice(&(1_u32 << 1 | (128 << 10) << 3).to_le_bytes()[..3]);
        frame.push(b'x');
    }
    frame.extend([1, 0, 0]);
    frame
}

/// A gzip member of one block, which no encoder makes: copies of the byte before, as long as copies are.
fn long_block() -> Vec<u8> {
    let mut bits = BitWriter::default();
    // The last block, in the fixed code; a zero; copies; the end.
    bits.put(0b011, 3);
    bits.put(u64::from(0x30_u8.reverse_bits()), 8);
    for _ in 0..300_000 {
        bits.put(0b1010_0011, 8);
        bits.put(0, 5);
    }
    bits.put(0, 7);
    bits.align();
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    member.extend(bits.take());
    member.extend([7; 8]);
    member
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap() / 1024
}

/// The most memory, in MiB, of a process that takes this stream apart, and how many plain bytes it has.
fn measured(which: &str) -> (u64, u64) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "memory::a_child_reads_a_stream"])
        .env(WHICH, which)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let told = printed.lines().find_map(|line| line.split_once("measured: "));
    let (_, told) = told.unwrap_or_else(|| panic!("{printed}"));
    let (peak, plain) = told.split_once(' ').unwrap();
    (peak.parse().unwrap(), plain.parse().unwrap())
}

#[test]
fn a_child_reads_a_stream() {
    let stream = match std::env::var(WHICH).as_deref() {
        Ok("large window") => large_window(),
        Ok("long block") => long_block(),
        _ => return,
    };
    let mut take_apart = TakeApart::new(Limits { plain: 1 << 40 });
    let mut plain = 0;
    take_apart
        .write(&stream, &mut |bytes| plain += bytes.len())
        .unwrap();
    take_apart.finish(&mut |bytes| plain += bytes.len()).unwrap();
    println!("measured: {} {plain}", peak_mib());
}

#[test]
fn the_largest_window_takes_the_memory_that_is_said() {
    let (peak, plain) = measured("large window");
    assert_eq!(plain, 3_000 * (128 << 10));
    // The window is kept, and half of it again, so that it moves seldom.
    assert!((128..220 + IDLE).contains(&peak), "{peak} MiB");
}

#[test]
fn a_block_without_end_takes_the_memory_that_is_said() {
    let (peak, plain) = measured("long block");
    assert_eq!(plain, 1 + 300_000 * 258);
    assert!(peak < 120 + IDLE, "{peak} MiB");
}
