//! Where things are in the picture of a recording.

use xebec_recordings::chart::{Chart, Mark};

/// Most rectangles of page runs. At 60 bytes each the picture stays under a megabyte.
pub(super) const MAX_RECTS: usize = 12_000;
/// The least width and height of one, in pixels: as little as can be seen on paper.
const LEAST: f64 = 2.0;
/// How much of the height is left free between layers, together, and at most between two.
const GAPS: f64 = 0.1;
const GAP: f64 = 8.0;

/// Where one file is drawn, in pixels from the top of the plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band {
    pub(super) top: f64,
    pub(super) height: f64,
}

impl Band {
    pub(super) fn middle(&self) -> f64 {
        self.top + self.height / 2.0
    }
}

/// A band for each file, one below the other. Its height is as the root of its size, so that small files can be seen
/// beside large ones; between layers there is a gap.
pub(super) fn bands(chart: &Chart, height: f64) -> Vec<Band> {
    let weight = |pages: u64| (pages.max(1) as f64).sqrt();
    let total: f64 = chart.files.iter().map(|file| weight(file.pages)).sum();
    let gaps = chart.layers.len().saturating_sub(1) as f64;
    let gap = (height * GAPS / gaps.max(1.0)).min(GAP);
    let scale = (height - gap * gaps) / total.max(1.0);
    let (mut top, mut last) = (0.0, 0);
    let mut bands = Vec::with_capacity(chart.files.len());
    for file in &chart.files {
        if file.layer != last {
            top += gap;
            last = file.layer;
        }
        let height = weight(file.pages) * scale;
        bands.push(Band { top, height });
        top += height;
    }
    bands
}

/// The rectangle of a page run: left, top, width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spot {
    pub(super) layer: usize,
    pub(super) steady: bool,
    pub(super) place: [f64; 4],
}

/// The rectangles of all runs, by layer, those of each run of the service first. `width` and `height` are of the plot and
/// `total` is the count of pages.
///
/// Where there are too many, those go of which there is one in the same place already, as wide as need be.
pub(super) fn spots(chart: &Chart, bands: &[Band], width: f64, total: u64) -> Vec<Spot> {
    let spot = |mark: &Mark| {
        let (file, band) = (chart.files.get(mark.file)?, bands.get(mark.file)?);
        let (x, y) = (
            width / total.max(1) as f64,
            band.height / file.pages.max(1) as f64,
        );
        let pages = mark.pages as f64;
        let place = [
            mark.at as f64 * x,
            band.top + mark.first as f64 * y,
            (pages * x).max(LEAST),
            (pages * y).max(LEAST),
        ];
        Some(Spot {
            layer: file.layer,
            steady: mark.steady,
            place,
        })
    };
    let mut spots: Vec<Spot> = chart.marks.iter().filter_map(spot).collect();
    let mut cell = LEAST / 2.0;
    while spots.len() > MAX_RECTS {
        cell *= 2.0;
        let mut taken = std::collections::HashSet::new();
        // The larger ones show what the others would.
        spots.sort_by(|one, other| {
            (other.place[2] * other.place[3]).total_cmp(&(one.place[2] * one.place[3]))
        });
        spots.retain(|spot| {
            let [x, y, ..] = spot.place;
            taken.insert((spot.layer, spot.steady, (x / cell) as i64, (y / cell) as i64))
        });
    }
    spots.sort_by(|one, other| {
        let key = |spot: &Spot| (spot.layer, !spot.steady);
        key(one)
            .cmp(&key(other))
            .then(one.place[0].total_cmp(&other.place[0]))
    });
    spots
}

/// Moves the `wanted` places, ascending, apart so that each is `step` below the one before it, inside of `0..height`, and
/// none further than it must.
pub(super) fn apart(wanted: &[f64], step: f64, height: f64) -> Vec<f64> {
    let mut places: Vec<f64> = Vec::with_capacity(wanted.len());
    for place in wanted {
        let least = places.last().map_or(0.0, |last| last + step);
        places.push(place.max(least));
    }
    let mut most = height;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - step;
    }
    places
}

/// Numbers for an axis to `total`: round ones, at most `count` of them besides 0.
pub(super) fn ticks(total: u64, count: u64) -> Vec<u64> {
    let mut step = 1u64;
    let grow = [2, 5, 10];
    let mut power = 1u64;
    let mut place = 0;
    while total / step.max(1) > count {
        let factor = grow.get(place % 3).copied().unwrap_or(10);
        step = power.saturating_mul(factor);
        if factor == 10 {
            power = step;
        }
        place += 1;
    }
    (0..=total / step).map(|number| number * step).collect()
}

/// The end of a text, at most `length` characters: the end says most of a path.
pub(super) fn end_of(text: &str, length: usize) -> String {
    let count = text.chars().count();
    if count <= length {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count + 1 - length.max(1)).collect();
    format!("…{end}")
}

/// The beginning of a text, at most `length` characters: the beginning says most of a command line.
pub(super) fn beginning_of(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(length.saturating_sub(1)).collect();
    format!("{beginning}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_distance() {
        assert_eq!(apart(&[5.0, 50.0], 10.0, 100.0), [5.0, 50.0]);
        assert_eq!(
            apart(&[5.0, 6.0, 7.0, 80.0], 10.0, 100.0),
            [5.0, 15.0, 25.0, 80.0]
        );
        assert_eq!(apart(&[95.0, 97.0, 99.0], 10.0, 100.0), [80.0, 90.0, 100.0]);
        assert!(apart(&[], 10.0, 100.0).is_empty());
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(ticks(10, 10), (0..=10).collect::<Vec<_>>());
        assert_eq!(ticks(918, 10), [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
        assert_eq!(
            ticks(4_418, 10),
            [0, 500, 1000, 1500, 2000, 2500, 3000, 3500, 4000]
        );
        assert_eq!(ticks(0, 10), [0]);
        assert!(ticks(u64::MAX, 10).len() <= 11);
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(end_of("/etc/passwd", 11), "/etc/passwd");
        assert_eq!(end_of("/usr/lib/x86_64/libc.so.6", 10), "…libc.so.6");
        assert_eq!(end_of("äöüäöüäöü", 4), "…äöü");
        assert_eq!(beginning_of("nginx -g", 8), "nginx -g");
        assert_eq!(beginning_of("äöüäöüäöü", 4), "äöü…");
        assert_eq!(
            (end_of("abc", 0), beginning_of("abc", 0)),
            ("…".to_owned(), "…".to_owned())
        );
    }
}
