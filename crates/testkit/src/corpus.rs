//! Plain bytes for tests, the same on every machine: the real encoders compressed them once, and `golden/` has the digests of what they wrote.
//! `examples/corpus.rs` writes them to files.
//!
//! Never change what a name means: make a new name.

/// Numbers that look random (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator that never ends would have to say so at each use"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next one below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Names of all corpora.
pub const NAMES: [&str; 10] = [
    "empty", "byte", "short", "run", "text", "records", "random", "zeros", "two", "tar",
];

/// The bytes of a corpus. Empty if there is none of that name.
pub fn bytes(name: &str) -> Vec<u8> {
    let mut numbers = Numbers(name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte)));
    match name {
        "byte" => vec![b'x'],
        "short" => b"to be or not to be, that is the question".to_vec(),
        "run" => vec![b'a'; 300],
        "text" => text(&mut numbers, 1_500_000),
        "records" => records(&mut numbers, 2_000_000),
        "random" => random(&mut numbers, 300_000),
        "zeros" => vec![0; 5_000_000],
        "two" => (0..400_000)
            .map(|_| if numbers.below(9) == 0 { b'1' } else { b'0' })
            .collect(),
        "tar" => tar(&mut numbers, 6_000_000),
        _ => Vec::new(),
    }
}

/// Words of a made-up language, the frequent ones often, in lines.
fn text(numbers: &mut Numbers, length: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..5_000)
        .map(|_| {
            let letters = 1 + numbers.below(3) + numbers.below(8);
            (0..letters)
                .map(|_| b"etaoinshrdlucmfwypvbgkjqxz"[numbers.below(26).min(numbers.below(26))])
                .collect()
        })
        .collect();
    let mut text = Vec::with_capacity(length + 20);
    let mut column = 0;
    while text.len() < length {
        let rank = numbers
            .below(words.len())
            .min(numbers.below(words.len()))
            .min(numbers.below(words.len()));
        text.extend_from_slice(&words[rank]);
        column += words[rank].len() + 1;
        if column > 70 {
            text.extend_from_slice(if numbers.below(8) == 0 { b".\n\n" } else { b"\n" });
            column = 0;
        } else {
            text.push(b' ');
        }
    }
    text.truncate(length);
    text
}

fn random(numbers: &mut Numbers, length: usize) -> Vec<u8> {
    (0..length).map(|_| numbers.next() as u8).collect()
}

/// What programs look like: records with counters, and changed copies of what came before, near and far.
fn records(numbers: &mut Numbers, length: usize) -> Vec<u8> {
    let mut bytes = random(numbers, 200);
    while bytes.len() < length {
        match numbers.below(6) {
            0 => {
                let count = 1 + numbers.below(200);
                let base = numbers.next() as u32;
                for index in 0..count as u32 {
                    bytes.extend_from_slice(&(base.wrapping_add(16 * index)).to_le_bytes());
                    bytes.extend_from_slice(&(index % 7).to_le_bytes());
                }
            }
            1 => bytes.extend(std::iter::repeat_n(
                numbers.below(4) as u8,
                1 + numbers.below(700),
            )),
            2 => bytes.extend((0..numbers.below(60)).map(|_| numbers.next() as u8)),
            _ => {
                let reach = if numbers.below(4) == 0 { 1_000_000 } else { 40_000 };
                let from = bytes.len() - 1 - numbers.below(reach.min(bytes.len()));
                let count = (3 + numbers.below(9) * numbers.below(60)).min(bytes.len() - from);
                let mut copy = bytes[from..from + count].to_vec();
                if numbers.below(2) == 0 {
                    let place = numbers.below(copy.len());
                    copy[place] ^= numbers.next() as u8;
                }
                bytes.extend(copy);
            }
        }
    }
    bytes.truncate(length);
    bytes
}

/// What a layer looks like: heads of 512 bytes and files of all kinds.
fn tar(numbers: &mut Numbers, length: usize) -> Vec<u8> {
    let mut tar = Vec::with_capacity(length + 300_000);
    while tar.len() < length {
        let size = numbers.below(2_000) * (1 + numbers.below(100));
        let mut head = format!("usr/share/{}/{:x}", numbers.below(40), numbers.next() % 0xffff).into_bytes();
        head.resize(100, 0);
        head.extend(format!("0000644\x000000000\x000000000\x00{size:011o}\x0014500000000\x00").into_bytes());
        head.resize(512, 0);
        tar.extend(head);
        let file = match numbers.below(8) {
            0 => random(numbers, size),
            1 => vec![0; size],
            2..=4 => text(numbers, size),
            _ => records(numbers, size),
        };
        tar.extend(file);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.truncate(length);
    tar
}
