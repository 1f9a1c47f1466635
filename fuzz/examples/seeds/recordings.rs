//! Runtime images.

use crate::output::{Failure, INDEX, LAYER, put};
use xebec_format::runtime_image::{
    BundledIndex, PageRun, RecordedLayer, Recording, SeenRun, Segment, SegmentDigest, Service, ServiceKey,
    Zone,
};
use xebec_fuzz::plain_numbers_of_recording;

/// A recording as it is, and with its numbers not yet compressed.
pub(crate) fn recordings() -> Result<(), Failure> {
    let run = |layer, first, pages| PageRun { layer, first, pages };
    let layer = |layer| RecordedLayer {
        layer,
        index: INDEX,
        data_size: 1000 << 12,
    };
    let segment = |zone, offset, runs: &[PageRun]| Segment {
        zone,
        offset,
        length: 1000,
        digest: SegmentDigest::Sha256(LAYER),
        runs: runs.to_vec(),
    };
    let service = |argv: &str, touched: &[PageRun]| Service {
        key: ServiceKey {
            argv: vec![argv.to_owned(), "-c".to_owned()],
            env: [("LANG".to_owned(), "C".to_owned())].into(),
        },
        probe: "port 80 answers".to_owned(),
        recorded: 1_700_000_000,
        runs: 3,
        recorder: "xebec 0.1.0".to_owned(),
        touched: touched.iter().map(|&run| SeenRun { run, seen: 2 }).collect(),
    };
    let zone = |digest| Zone { digest, size: 5000 };
    let mut recording = Recording {
        image: LAYER,
        layers: vec![layer(LAYER), layer(INDEX)],
        services: vec![
            service("nginx", &[run(0, 100, 8), run(1, 3, 1), run(0, 500, 2)]),
            service("sh", &[run(1, 2, 1), run(0, 104, 4)]),
        ],
        zeros: vec![run(1, 3, 1), run(0, 990, 10)],
        zones: vec![zone(LAYER), zone(INDEX)],
        indexes: vec![BundledIndex {
            layer: 1,
            zone: 1,
            offset: 2000,
            length: 500,
        }],
        segments: vec![
            segment(0, 0, &[run(0, 100, 8), run(0, 500, 2)]),
            segment(0, 3000, &[run(0, 300, 200)]),
            segment(1, 17, &[run(1, 2, 1)]),
        ],
    };
    recording.check()?;
    for (kinds, number) in [("", None), ("-kinds", Some(1))] {
        if let Some(segment) = number.and_then(|number: usize| recording.segments.get_mut(number)) {
            segment.digest = SegmentDigest::of(b"pages");
        }
        let encoded = recording.encode();
        let seed = [b"\0", &encoded[..]].concat();
        put("runtime_image", &format!("encoded{kinds}"), &seed)?;
        let numbers = plain_numbers_of_recording(&encoded).ok_or("a recording without numbers")?;
        let seed = [b"\x01", &numbers[..]].concat();
        put("runtime_image", &format!("numbers{kinds}"), &seed)?;
    }
    Ok(())
}
