//! Requests of many clients, with the habits that DupHunter (TOS 2024) reports of the registries of IBM Cloud, and layers to ask for.
//!
//! Few images get most pulls (Zipf). A client asks for a manifest, and some time later for those of its layers that it lacks, three at a time; most
//! layers go to a client once (97 % of those in Sydney). In London 80 % of these times are longer than a second, in Sydney 60 % longer than five. Layers there have
//! 9.6 MB on average (Dallas: 18 GB, 1,870 layers); ours are smaller by [`SCALE`], and so are the times: what a layer costs to restore goes with its size.

use std::collections::HashSet;
use std::time::Duration;

use xebec_deflate::encoders::go::Go;
use xebec_deflate::encoders::{Encoder as _, Output};
use xebec_testkit::corpus::Numbers;

use crate::common::Failure;

/// By this much layers are smaller than those of the paper, and times shorter.
pub(crate) const SCALE: f64 = 40.0;
const IMAGES: usize = 120;
const CLIENTS: usize = 60;
/// Layers that several images begin with.
const BASES: usize = 12;
/// Of a hundred layers that a client has, so many it asks for again.
const AGAIN: usize = 3;
/// Layers that a client fetches at the same time.
const AT_ONCE: usize = 3;

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Of the manifest with these layers.
    Manifest(Vec<usize>),
    /// Of a layer.
    Layer(usize),
}

/// When a client asks for something, from the beginning of the trace on.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) client: usize,
    pub(crate) request: Request,
}

/// Images, by the numbers of their layers, and how many layers there are.
pub(crate) fn images(numbers: &mut Numbers) -> (Vec<Vec<usize>>, usize) {
    let mut next = BASES;
    let images = (0..IMAGES).map(|_| {
        let own = 1 + numbers.below(5);
        let first = next;
        next += own;
        let base = zipf(numbers, BASES, 1.0);
        std::iter::once(base).chain(first..first + own).collect()
    });
    (images.collect(), next)
}

/// So many requests, evenly spread over so long, in the order of their times.
pub(crate) fn requests(
    images: &[Vec<usize>],
    count: usize,
    span: Duration,
    numbers: &mut Numbers,
) -> Vec<Event> {
    let mut has: Vec<HashSet<usize>> = vec![HashSet::new(); CLIENTS];
    let mut pulls = Vec::new();
    let mut all = 0;
    while all < count {
        // Few clients make most requests, as in London.
        let client = zipf(numbers, CLIENTS, 0.7);
        let image = &images[zipf(numbers, images.len(), 0.9)];
        let lacking = image
            .iter()
            .copied()
            .filter(|layer| has[client].insert(*layer) || numbers.below(100) < AGAIN);
        let lacking: Vec<usize> = lacking.collect();
        all += 1 + lacking.len();
        pulls.push((client, image.clone(), lacking));
    }
    let step = span / u32::try_from(pulls.len()).unwrap_or(u32::MAX);
    let mut events = Vec::new();
    let mut at = Duration::ZERO;
    for (client, image, lacking) in pulls {
        events.push(Event {
            at,
            client,
            request: Request::Manifest(image),
        });
        let mut later = at;
        for (number, layer) in lacking.into_iter().enumerate() {
            // The first three at once, each next one when a place is free.
            if number % AT_ONCE == 0 {
                later += wait(numbers);
            }
            events.push(Event {
                at: later,
                client,
                request: Request::Layer(layer),
            });
        }
        at += step;
    }
    events.sort_by_key(|event| event.at);
    events
}

/// A time between manifest and layers: three seconds in the middle, less than one in a fifth of all, scaled down.
fn wait(numbers: &mut Numbers) -> Duration {
    Duration::from_secs_f64(3.0 / SCALE * (1.3 * normal(numbers)).exp().min(20.0))
}

/// Plain bytes of a layer: 9.6 MB compressed on average, scaled down, most much less, none less than is taken apart.
fn size(numbers: &mut Numbers) -> usize {
    let compressed = 9.6e6 / SCALE * (1.2 * normal(numbers) - 0.72).exp();
    (compressed.clamp(8e4, 3e6) * 2.2) as usize
}

/// A layer by Go's encoder at level 6, as Docker writes it: a third of its files are in other layers, too.
pub(crate) fn layer(number: usize) -> Result<Vec<u8>, Failure> {
    let mut numbers = Numbers(number as u64 + 77);
    let (mut left, mut file) = (size(&mut numbers), 0);
    let mut tar = tar::Builder::new(Vec::new());
    while left > 0 {
        let seed = match numbers.below(3) {
            0 => numbers.below(400),
            _ => 1000 * (number + 1) + file,
        };
        let contents = text(seed as u64, left.min(2_000 + 997 * (seed % 60)));
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        let name = format!("usr/lib/{number}/file-{file}.txt");
        tar.append_data(&mut header, name, contents.as_slice())?;
        left -= contents.len();
        file += 1;
    }
    gzip(&tar.into_inner()?)
}

fn gzip(plain: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut encoder = Go::new(6).ok_or("there is no such level")?;
    let mut output = Output::default();
    encoder.write(plain, &mut output);
    encoder.finish(&mut output);
    output.bits.align();
    let mut sum = flate2::Crc::new();
    sum.update(plain);
    let mut stream = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    stream.extend(output.bits.take());
    stream.extend(sum.sum().to_le_bytes());
    stream.extend((plain.len() as u32).to_le_bytes());
    Ok(stream)
}

/// Words and numbers that compress by somewhat more than half.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
    let words: Vec<String> = (0..2000)
        .map(|_| format!("{:x} ", numbers.next() >> (24 + numbers.below(32))))
        .collect();
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        match numbers.below(4) {
            0 => text.extend_from_slice(&numbers.next().to_le_bytes()),
            _ => text.extend_from_slice(words[numbers.below(words.len())].as_bytes()),
        }
    }
    text.truncate(length);
    text
}

/// A number below `count`, small ones often: the one in place r as often as 1 / r^skew.
fn zipf(numbers: &mut Numbers, count: usize, skew: f64) -> usize {
    let weight = |place: usize| (place as f64 + 1.0).powf(-skew);
    let mut left = unit(numbers) * (0..count).map(weight).sum::<f64>();
    for place in 0..count {
        left -= weight(place);
        if left < 0.0 {
            return place;
        }
    }
    count - 1
}

fn unit(numbers: &mut Numbers) -> f64 {
    (numbers.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Of a normal distribution: the sum of twelve numbers between 0 and 1, less 6.
fn normal(numbers: &mut Numbers) -> f64 {
    (0..12).map(|_| unit(numbers)).sum::<f64>() - 6.0
}
