//! Units: the parts of a blob that are restored by themselves. A description has parts from a few bytes to some MiB; those that are small are
//! restored together.

use std::ops::Range;

use xebec_recompress::{Description, Place};

/// Bytes of a blob and plain bytes that a unit has, about, unless one part alone has more.
const SIZE: u64 = 4 << 20;

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
    let mut units: Vec<Unit> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        // A part without plain bytes is no reason to read any.
        let needs = match place.needs.is_empty() {
            true => None,
            false => Some(place.needs.clone()),
        };
        if let Some(last) = units.last_mut() {
            let joined = join(&last.needs, needs.as_ref());
            let is_small = place.stream.end - last.bytes.start <= SIZE && joined.end - joined.start <= SIZE;
            if is_small {
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
    let starts = (0..size).step_by(SIZE as usize);
    let unit = |start: u64| {
        let bytes = start..size.min(start + SIZE);
        Unit {
            needs: bytes.clone(),
            bytes,
            places: 0..0,
        }
    };
    starts.map(unit).collect()
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
    use super::*;

    #[test]
    fn a_range_has_the_units_that_it_touches() {
        let units = of_plain(3 * SIZE + 5);
        assert_eq!(units.len(), 4);
        assert_eq!(units[3].bytes, 3 * SIZE..3 * SIZE + 5);
        assert_eq!(within(&units, &(0..1)), 0..1);
        assert_eq!(within(&units, &(SIZE - 1..SIZE + 1)), 0..2);
        assert_eq!(within(&units, &(SIZE..2 * SIZE)), 1..2);
        assert_eq!(within(&units, &(3 * SIZE..3 * SIZE + 5)), 3..4);
        assert_eq!(within(&units, &(7..7)), 0..0);
        assert_eq!(within(&units, &(0..3 * SIZE + 5)), 0..4);
        assert!(of_plain(0).is_empty());
    }
}
