//! Streams are taken apart and made again.

use proptest::prelude::*;

use super::describe::{Describer, Failure, Options};
use super::restore::{history, restore};
use xebec_testkit::corpus;

/// A stretch, as it is kept.
struct Kept {
    plain: Vec<u8>,
    compressed: usize,
    corrections: Vec<u8>,
}

fn describe(stream: &[u8], options: Options, piece: usize) -> Result<Vec<Kept>, Failure> {
    let mut kept = Vec::new();
    let mut describer = Describer::new(options);
    let mut give = |stretch: super::describe::Stretch<'_>| {
        kept.push(Kept {
            plain: stretch.plain.to_vec(),
            compressed: stretch.compressed,
            corrections: stretch.corrections,
        });
    };
    for some in stream.chunks(piece) {
        describer.push(some, &mut give)?;
    }
    describer.finish(&mut give)?;
    Ok(kept)
}

/// Makes each stretch by itself, and returns the stream, the plain bytes and how long all corrections are.
fn make_again(kept: &[Kept]) -> (Vec<u8>, Vec<u8>, usize) {
    let (mut plain, mut stream, mut corrections) = (Vec::new(), Vec::new(), 0);
    for stretch in kept {
        let before = history(&stretch.corrections).unwrap();
        let first = plain.len() - before;
        plain.extend_from_slice(&stretch.plain);
        stream.extend(restore(&plain[first..], before, &stretch.corrections, stretch.compressed).unwrap());
        corrections += stretch.corrections.len();
    }
    (stream, plain, corrections)
}

#[test]
fn streams_of_libzstd_are_made_again() {
    for name in corpus::NAMES {
        let plain = corpus::bytes(name);
        let plain = &plain[..plain.len().min(700_000)];
        for level in [-5, 1, 3, 5, 9, 16] {
            let stream = zstd::encode_all(plain, level).unwrap();
            let options = Options {
                stretch: 300_000,
                history: 200_000,
            };
            let kept = describe(&stream, options, 50_000).unwrap();
            let (made, made_plain, corrections) = make_again(&kept);
            assert!(made == stream && made_plain == plain, "{name} {level}");
            // The highest levels look for the best way through a whole block, which no prediction follows.
            let most = if level < 16 {
                stream.len() / 2
            } else {
                stream.len()
            };
            assert!(
                corrections < 200 + most,
                "{name} {level}: {corrections} of {}",
                stream.len()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn damaged_corrections_are_no_panic(seed in any::<u64>(), level in -3..10, damages in prop::collection::vec((any::<usize>(), any::<u8>()), 1..5)) {
        let mut numbers = corpus::Numbers(seed);
        let text = corpus::bytes("records");
        let from = numbers.below(text.len() - 60_000);
        let plain = &text[from..from + 30_000 + numbers.below(30_000)];
        let stream = zstd::encode_all(plain, level).unwrap();
        let kept = describe(&stream, Options { stretch: 20_000, history: 10_000 }, 7_000).unwrap();
        for mut stretch in kept {
            let before = history(&stretch.corrections).unwrap();
            for &(place, byte) in &damages {
                let length = stretch.corrections.len();
                stretch.corrections[place % length] ^= byte;
            }
            if seed % 3 == 0 {
                stretch.corrections.truncate(stretch.corrections.len() / 2);
            }
            let text = &plain[..before.min(plain.len() - stretch.plain.len()) + stretch.plain.len()];
            if let Ok(made) = restore(text, text.len() - stretch.plain.len(), &stretch.corrections, stretch.compressed + 10) {
                prop_assert!(made.len() <= stretch.compressed + 10 + (128 << 10));
            }
        }
    }
}
