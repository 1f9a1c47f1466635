//! zstd frames whose plain size is known.

use std::io;

use parking_lot::Mutex;
use zstd::bulk::Decompressor;

/// So many decompressors are kept for later use, about 100 KB each: making one takes longer than decompressing
/// some kilobytes, and a start decompresses some twenty frames in a few threads.
const KEPT: usize = 4;

static IDLE: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());

/// The plain bytes of one frame or of several, at most `most` of them.
///
/// # Errors
/// When the bytes are no frames, or hold more.
pub(crate) fn decompress(stored: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let idle = IDLE.lock().pop();
    let mut decompressor = match idle {
        Some(decompressor) => decompressor,
        None => Decompressor::new()?,
    };
    let plain = decompressor.decompress(stored, most);
    keep(&mut IDLE.lock(), decompressor);
    plain
}

/// Keeps an idle one for later use, if there are not enough.
fn keep<T>(idle: &mut Vec<T>, one: T) {
    if idle.len() < KEPT {
        idle.push(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_before_does_not_matter() {
        let plain: Vec<u8> = (0..300_000u32).flat_map(|n| (n % 1000).to_le_bytes()).collect();
        let stored = zstd::bulk::compress(&plain, 3).unwrap();
        let broken = [&stored[..stored.len() / 2], &[0xff; 9]].concat();
        for _ in 0..2 * KEPT {
            assert_eq!(decompress(&stored, plain.len()).unwrap(), plain);
            assert!(decompress(&broken, plain.len()).is_err());
            assert!(decompress(&stored, plain.len() - 1).is_err());
            assert!(decompress(&stored[..9], plain.len()).is_err());
        }
        assert!(IDLE.lock().len() <= KEPT);
    }

    #[test]
    fn some_are_kept_and_the_others_are_not() {
        let mut idle = Vec::new();
        (0..2 * KEPT).for_each(|number| keep(&mut idle, number));
        assert_eq!(idle, [0, 1, 2, 3]);
    }

    #[test]
    fn by_many_threads_at_a_time() {
        std::thread::scope(|scope| {
            for thread in 0..3 * KEPT {
                scope.spawn(move || {
                    for round in 0..50usize {
                        let plain = vec![thread as u8; 1000 * round];
                        let stored = zstd::bulk::compress(&plain, 1).unwrap();
                        assert_eq!(decompress(&stored, plain.len()).unwrap(), plain);
                    }
                });
            }
        });
    }
}
