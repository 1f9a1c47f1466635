//! Units: the parts of a blob that are restored by themselves. A description has parts from a few bytes to some MiB; those that are small are
//! restored together. The first units are shorter than others, so that a client has its first bytes soon.

use std::ops::Range;

use xebec_recompress::{Description, Place};

/// Bytes of a blob and plain bytes that a unit has, about, unless one part alone has more: about as many as a slice of a description, so that processors restore
/// some side by side for one client.
const SIZE: u64 = 1 << 20;
/// The same of the first ones. Each is as long as all before it, until one has [`SIZE`].
const FIRST: u64 = SIZE / 4;
/// A part without plain bytes that has no more bytes is the head or the sum of a member: it goes with the part beside it.
const LITTLE: u64 = 4 << 10;

/// What a unit has at most that begins at this byte of a blob, or at this plain byte.
fn most(start: u64) -> u64 {
    start.clamp(FIRST, SIZE)
}

/// One unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The bytes of the blob that it makes.
    pub(crate) bytes: Range<u64>,
    /// The plain bytes that it needs.
    pub(crate) needs: Range<u64>,
    /// Its parts of the description: a range of indices. Of a blob that is not compressed, none.
    pub(crate) places: Range<usize>,
}

impl Unit {
    /// The memory that restoring it takes, about.
    pub(crate) fn memory(&self) -> u64 {
        // The plain bytes, what an encoder knows of them, and the bytes that are made.
        2 * (self.needs.end - self.needs.start) + (self.bytes.end - self.bytes.start) + (2 << 20)
    }
}

/// The units of a compressed blob, in order.
pub(crate) fn of_places(places: &[Place]) -> Vec<Unit> {
    let is_little = |place: &Place| place.needs.is_empty() && place.stream.end - place.stream.start <= LITTLE;
    let mut units: Vec<Unit> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        // A part without plain bytes is no reason to read any.
        let needs = match place.needs.is_empty() {
            true => None,
            false => Some(place.needs.clone()),
        };
        if let Some(last) = units.last_mut() {
            let joined = join(&last.needs, needs.as_ref());
            let most = most(last.bytes.start.max(last.needs.start));
            let is_small = place.stream.end - last.bytes.start <= most && joined.end - joined.start <= most;
            // Two that are little follow each other nowhere, so a unit does not grow by them.
            let before = &places[index - 1];
            let is_head = last.places.len() == 1 && is_little(before);
            let is_sum = is_little(place) && !is_little(before);
            if is_small || is_head || is_sum {
                last.bytes.end = place.stream.end;
                last.needs = joined;
                last.places.end = index + 1;
                continue;
            }
        }
        units.push(Unit {
            bytes: place.stream.clone(),
            needs: needs.unwrap_or(0..0),
            places: index..index + 1,
        });
    }
    units
}

fn join(one: &Range<u64>, other: Option<&Range<u64>>) -> Range<u64> {
    match other {
        Some(other) if one.is_empty() => other.clone(),
        Some(other) => one.start.min(other.start)..one.end.max(other.end),
        None => one.clone(),
    }
}

/// The units of a blob of so many bytes that is not compressed.
pub(crate) fn of_plain(size: u64) -> Vec<Unit> {
    let (mut units, mut start) = (Vec::new(), 0);
    while start < size {
        let bytes = start..size.min(start + most(start));
        start = bytes.end;
        units.push(Unit {
            needs: bytes.clone(),
            bytes,
            places: 0..0,
        });
    }
    units
}

/// The indices of the units that make a range.
pub(crate) fn within(units: &[Unit], range: &Range<u64>) -> Range<usize> {
    if range.is_empty() {
        return 0..0;
    }
    let first = units.partition_point(|unit| unit.bytes.end <= range.start);
    let end = units.partition_point(|unit| unit.bytes.start < range.end);
    first..end.max(first)
}

/// Makes the bytes of a unit of a compressed blob. `plain` is what it needs.
pub(crate) fn make(
    description: &Description,
    places: &[Place],
    unit: &Unit,
    plain: &[u8],
) -> Result<Vec<u8>, xebec_recompress::RestoreError> {
    let mut bytes = Vec::new();
    for place in places.get(unit.places.clone()).unwrap_or_default() {
        let needs = if place.needs.is_empty() {
            0..0
        } else {
            place.needs.start - unit.needs.start..place.needs.end - unit.needs.start
        };
        let needs = plain.get(needs.start as usize..needs.end as usize);
        let needs = needs.ok_or(xebec_recompress::RestoreError::TooFewPlainBytes)?;
        bytes.extend(description.restore(place, needs)?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use xebec_deflate::encoders::go::Go;
    use xebec_deflate::encoders::{Encoder as _, Output};
    use xebec_recompress::{Limits, TakeApart};

    use super::*;

    #[test]
    fn a_range_has_the_units_that_it_touches() {
        let units = of_plain(3 * SIZE + 5);
        let starts: Vec<u64> = units.iter().map(|unit| unit.bytes.start / FIRST).collect();
        assert_eq!(starts, [0, 1, 2, 4, 8, 12]);
        assert_eq!(units[5].bytes, 3 * SIZE..3 * SIZE + 5);
        assert_eq!(within(&units, &(0..1)), 0..1);
        assert_eq!(within(&units, &(SIZE - 1..SIZE + 1)), 2..4);
        assert_eq!(within(&units, &(SIZE..2 * SIZE)), 3..4);
        assert_eq!(within(&units, &(3 * SIZE..3 * SIZE + 5)), 5..6);
        assert_eq!(within(&units, &(7..7)), 0..0);
        assert_eq!(within(&units, &(0..3 * SIZE + 5)), 0..6);
        assert!(of_plain(0).is_empty());
    }

    /// A gzip member by Go's encoder.
    fn member(plain: &[u8]) -> Vec<u8> {
        let (mut encoder, mut output) = (Go::new(6).unwrap(), Output::default());
        encoder.write(plain, &mut output);
        encoder.finish(&mut output);
        output.bits.align();
        let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        [&head[..], &output.bits.take(), &[0; 8]].concat()
    }

    fn units(stream: &[u8]) -> Vec<Unit> {
        let mut taking = TakeApart::new(Limits { plain: 1 << 30 });
        taking.write(stream, &mut |_| {}).unwrap();
        let description = taking.finish(&mut |_| {}).unwrap();
        let units = of_places(&description.places());
        let starts = units.iter().map(|unit| unit.bytes.start).skip(1);
        assert!(starts.eq(units.iter().map(|unit| unit.bytes.end).take(units.len() - 1)));
        assert_eq!(units.last().unwrap().bytes.end, stream.len() as u64);
        units
    }

    #[test]
    fn the_first_units_are_short_and_heads_and_sums_go_with_others() {
        let stream = member(&xebec_testkit::corpus::bytes("tar")[..5_000_000]);
        let units = units(&stream);
        // A slice may have a block more than it should, 32 KiB before it, and some after it.
        let lengths = units
            .iter()
            .map(|unit| (unit.needs.end - unit.needs.start) / FIRST);
        assert_eq!(lengths.collect::<Vec<_>>(), [1, 1, 2, 4, 4, 4, 2]);
        let sizes = units.iter().map(|unit| unit.bytes.end - unit.bytes.start);
        assert!(sizes.min().unwrap() > LITTLE);
    }

    #[test]
    fn short_members_are_restored_together() {
        let plain = xebec_testkit::corpus::bytes("tar");
        let stream = plain[..1_200_000]
            .chunks(5000)
            .map(member)
            .collect::<Vec<_>>()
            .concat();
        let units = units(&stream);
        let most = units
            .iter()
            .map(|unit| (unit.needs.end - unit.needs.start).div_ceil(FIRST));
        assert_eq!(most.collect::<Vec<_>>(), [1, 1, 2, 1]);
    }
}
