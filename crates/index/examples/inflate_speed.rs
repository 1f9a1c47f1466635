use std::io::Read;
use std::time::Instant;
use xebec_index::inflate::*;
fn main() {
    let data = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
    for _ in 0..3 {
        let t = Instant::now();
        let mut d = Decoder::new();
        let mut input = Input { bytes: &data, position: 10, last: true };
        let mut buf = vec![0u8; (32 << 10) + (256 << 10) + OUTPUT_SLACK];
        let mut total = 0usize;
        let mut crc = crc32fast::Hasher::new();
        let mut pos = 0; let mut history; let mut blocks = 0;
        loop {
            let limit = buf.len() - OUTPUT_SLACK;
            history = 0;
            let start = pos;
            let mut out = Output { bytes: &mut buf, position: pos, history, limit, references: None };
            let s = d.run(&mut input, &mut out).unwrap();
            pos = out.position;
            crc.update(&buf[start..pos]);
            total += pos - start;
            match s { Stop::Block => { blocks += 1; } Stop::Output => { buf.copy_within(pos - HISTORY..pos, 0); pos = HISTORY; } Stop::End => break, Stop::Input => unreachable!() }
        }
        let dt = t.elapsed().as_secs_f64();
        println!("ours {total} bytes {blocks} blocks {:.0} MB/s crc ok {}", total as f64 / dt / 1e6, crc.finalize() == u32::from_le_bytes(data[data.len()-8..data.len()-4].try_into().unwrap()));
        let t = Instant::now();
        let mut d = flate2::bufread::GzDecoder::new(&data[..]);
        let mut b = vec![0; 256 << 10]; let mut n = 0; loop { let k = d.read(&mut b).unwrap(); if k == 0 { break } n += k; }
        println!("flate2 zlib {} {:.0} MB/s", n, n as f64 / t.elapsed().as_secs_f64() / 1e6);
    }
}
