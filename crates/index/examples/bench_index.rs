fn main() {
    let data = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
    for _ in 0..3 {
    let t = std::time::Instant::now();
    let r = xebec_index::indexer::index_layer(&data[..], &Default::default(), None).unwrap();
    let dt = t.elapsed().as_secs_f64();
    println!("{:.0} MB/s spans {} windows {} frame {} entries {} {:?}", r.index.plain_size as f64 / dt / 1e6, r.index.spans.len(), r.windows.len(), r.frame.len(), r.index.entries.len(), r.laziness);
    r.index.check().unwrap();
    let t = std::time::Instant::now();
    let mut n = 0; let mut space = vec![0; r.index.data_size as usize];
    for s in &r.index.spans {
        let w = s.window.as_ref().map(|w| &r.windows[w.offset as usize..][..w.length as usize]);
        let d = xebec_index::decode::decode_span(r.index.codec, s, &r.index.pieces, &data[s.source.start as usize..s.source.end as usize], w).unwrap();
        n += d.len();
        space[s.data.start as usize..s.data.end as usize].copy_from_slice(&d);
    }
    println!("decode {:.0} MB/s of {n}", n as f64 / t.elapsed().as_secs_f64() / 1e6);
    let d = xebec_index::restore::restore_tar(&r.index, &r.frame[..], &space[..], std::io::sink()).unwrap();
    println!("restored {}", Some(d) == r.index.diff_id);
    }
}
