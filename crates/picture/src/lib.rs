//! A picture of what a service reads at its start: the files of its image against the order of first access, as SVG that
//! needs nothing else and can be printed: `xebec inspect --runtime-image --svg`.
//!
//! # Promises
//!
//! The same chart gives the same picture. Names from images are text of the picture, never markup (`xml`).
//!
//! # Crates that it may use
//!
//! `recordings` for the chart that is drawn, `format` and `kernel` for its units. It opens and writes no file.
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | here | the picture from its heading to its legend |
//! | `layout` | where pages, files and names come to stand |
//! | `xml` | elements, attributes and text |

mod layout;
mod xml;

use xebec_format::PAGE_SIZE;
use xebec_kernel::size::{self, share};
use xebec_recordings::chart::{Chart, ChartLayer};

use layout::{Band, apart, bands, beginning_of, end_of, spots, ticks};
use xml::Xml;

/// The picture, in pixels: as wide and high as a sheet of paper that lies on its side.
const WIDTH: f64 = 1400.0;
const HEIGHT: f64 = 990.0;
/// Where the plot is.
const LEFT: f64 = 70.0;
const TOP: f64 = 104.0;
const PLOT_WIDTH: f64 = 880.0;
const PLOT_HEIGHT: f64 = 700.0;
/// From one name of a file to the next.
const LINE: f64 = 17.5;
/// Files that are named, and characters of a name.
const NAMED: usize = 40;
const NAME: usize = 52;
/// Layers that the legend lists; lines of one of its columns.
const LISTED: usize = 11;
const COLUMN: usize = 4;
/// Of layers, one after the other, and again. Far apart from their neighbours, also in grey.
const COLOURS: [&str; 8] = [
    "#1f5fa8", "#d1610f", "#2a8c4a", "#a8257a", "#6d4ba3", "#8a6d1b", "#0f8f9c", "#b3262d",
];
/// How a page looks that not every run read.
const UNSTEADY: &str = "0.4";

/// Draws it: the whole text of an SVG file.
pub fn draw(chart: &Chart) -> String {
    let mut xml = Xml::new(WIDTH, HEIGHT);
    let total: u64 = chart.marks.iter().map(|mark| mark.pages).sum();
    heading(&mut xml, chart);
    let bands = bands(chart, PLOT_HEIGHT);
    xml.open(&format!(" transform=\"translate({LEFT} {TOP})\""));
    axes(&mut xml, &bands, total);
    layer_edges(&mut xml, chart, &bands);
    let mut group = None;
    for spot in spots(chart, &bands, PLOT_WIDTH, total) {
        let this = (spot.layer, spot.steady);
        if group != Some(this) {
            if group.is_some() {
                xml.close();
            }
            group = Some(this);
            let opacity = match spot.steady {
                true => String::new(),
                false => format!(" fill-opacity=\"{UNSTEADY}\""),
            };
            let colour = colour(spot.layer);
            let class = if spot.steady { "steady" } else { "some" };
            xml.open(&format!(" class=\"pages {class}\" fill=\"{colour}\"{opacity}"));
        }
        xml.rect(spot.place, "");
    }
    if group.is_some() {
        xml.close();
    }
    file_names(&mut xml, chart, &bands);
    xml.close();
    legend(&mut xml, chart);
    xml.finish()
}

fn colour(layer: usize) -> &'static str {
    COLOURS.get(layer % COLOURS.len()).copied().unwrap_or("#222222")
}

/// Which image, which service, how much.
fn heading(xml: &mut Xml, chart: &Chart) {
    let service = &chart.service;
    let env = service.env.iter().map(|(name, value)| format!("{name}={value}"));
    let words: Vec<String> = env.chain(service.argv.iter().cloned()).collect();
    let words = words.join(" ");
    xml.title(&format!("What {words} reads of {} at its start", chart.reference));
    xml.rect([0.0, 0.0, WIDTH, HEIGHT], " fill=\"#ffffff\"");
    let reference = end_of(&chart.reference, 100);
    xml.text((LEFT, 34.0), " font-size=\"20\" font-weight=\"bold\"", &reference);
    xml.text_with(
        (LEFT, 57.0),
        " font-size=\"14\" font-family=\"'DejaVu Sans Mono', monospace\"",
        &beginning_of(&words, 140),
        Some(&words),
    );
    let runs = match service.runs {
        1 => "one run".to_owned(),
        runs => format!(
            "{} of the pages in each of {runs} runs",
            share(service.steady_pages, service.pages)
        ),
    };
    let facts = [
        format!(
            "{} pages ({})",
            service.pages,
            size::for_people(service.pages * PAGE_SIZE)
        ),
        format!(
            "{} to fetch, {} of the image's {}",
            size::for_people(service.stored_bytes),
            share(service.stored_bytes, chart.image_bytes),
            size::for_people(chart.image_bytes)
        ),
        format!("{} files of {} layers", chart.files.len(), chart.layers.len()),
        runs,
        format!("probe {}", beginning_of(&service.probe, 40)),
        format!("recording {}", service.recording.short()),
    ];
    xml.text(
        (LEFT, 80.0),
        " fill=\"#555555\" font-size=\"13\"",
        &facts.join(" · "),
    );
}

/// The frame, and how many pages were read before.
fn axes(xml: &mut Xml, bands: &[Band], total: u64) {
    xml.rect(
        [0.0, 0.0, PLOT_WIDTH, PLOT_HEIGHT],
        " fill=\"#ffffff\" stroke=\"#888888\"",
    );
    file_stripes(xml, bands);
    let grey = " fill=\"#555555\"";
    for tick in ticks(total, 10) {
        let x = tick as f64 * PLOT_WIDTH / total.max(1) as f64;
        if tick > 0 {
            xml.line(&[(x, 0.0), (x, PLOT_HEIGHT)], " stroke=\"#dcdcdc\"");
        }
        xml.line(&[(x, PLOT_HEIGHT), (x, PLOT_HEIGHT + 5.0)], " stroke=\"#888888\"");
        let middle = format!("{grey} text-anchor=\"middle\"");
        xml.text((x, PLOT_HEIGHT + 18.0), &middle, &tick.to_string());
        if tick > 0 {
            xml.text(
                (x, PLOT_HEIGHT + 32.0),
                &middle,
                &size::for_people(tick * PAGE_SIZE),
            );
        }
    }
    xml.text(
        (PLOT_WIDTH / 2.0, PLOT_HEIGHT + 52.0),
        " text-anchor=\"middle\" font-size=\"13\"",
        "pages in the order of first access",
    );
    xml.text(
        (-46.0, PLOT_HEIGHT / 2.0),
        &format!(
            " text-anchor=\"middle\" font-size=\"13\" transform=\"rotate(-90 -46 {})\"",
            PLOT_HEIGHT / 2.0
        ),
        "files by layer, lowest first; the height of a file is as the root of its size",
    );
}

/// Every other file is a little darker, where that can be seen.
fn file_stripes(xml: &mut Xml, bands: &[Band]) {
    let visible = bands.iter().filter(|band| band.height >= 3.0);
    for band in visible.step_by(2) {
        xml.rect(
            [0.5, band.top, PLOT_WIDTH - 1.0, band.height],
            " fill=\"#f3f3f3\"",
        );
    }
}

/// The files of each layer together: a bar at the left and its number.
fn layer_edges(xml: &mut Xml, chart: &Chart, bands: &[Band]) {
    let edges: Vec<(f64, f64)> = (0..chart.layers.len())
        .map(|layer| {
            let files = chart.files.iter().zip(bands);
            let of_layer = files
                .filter(|(file, _)| file.layer == layer)
                .map(|(_, band)| band);
            of_layer.fold((f64::INFINITY, 0.0), |(top, end), band| {
                (band.top.min(top), (band.top + band.height).max(end))
            })
        })
        .collect();
    let middles: Vec<f64> = edges.iter().map(|(top, end)| (top + end) / 2.0 + 4.0).collect();
    let places = apart(&middles, 12.0, PLOT_HEIGHT);
    for (number, (((top, end), place), layer)) in edges.iter().zip(places).zip(&chart.layers).enumerate() {
        let colour = colour(number);
        xml.rect(
            [-9.0, *top, 6.0, (end - top).max(1.5)],
            &format!(" fill=\"{colour}\""),
        );
        xml.text(
            (-14.0, place),
            &format!(" text-anchor=\"end\" fill=\"{colour}\" font-weight=\"bold\""),
            &layer.number.to_string(),
        );
    }
}

/// The files with most pages, beside the plot.
fn file_names(xml: &mut Xml, chart: &Chart, bands: &[Band]) {
    let mut pages = vec![0u64; chart.files.len()];
    for mark in &chart.marks {
        if let Some(pages) = pages.get_mut(mark.file) {
            *pages += mark.pages;
        }
    }
    let mut files: Vec<usize> = (0..chart.files.len()).collect();
    let of_file = |file: &usize| pages.get(*file).copied().unwrap_or_default();
    files.sort_by_key(|file| std::cmp::Reverse(of_file(file)));
    files.truncate(NAMED);
    files.sort_unstable();
    let middles: Vec<f64> = files
        .iter()
        .filter_map(|file| bands.get(*file))
        .map(Band::middle)
        .collect();
    let places = apart(&middles, LINE, PLOT_HEIGHT);
    let x = PLOT_WIDTH + 30.0;
    for ((number, middle), place) in files.iter().zip(&middles).zip(places) {
        let Some(file) = chart.files.get(*number) else {
            continue;
        };
        let colour = colour(file.layer);
        xml.line(
            &[
                (PLOT_WIDTH, *middle),
                (PLOT_WIDTH + 8.0, *middle),
                (x - 8.0, place),
                (x - 3.0, place),
            ],
            &format!(" stroke=\"{colour}\" stroke-opacity=\"0.5\" stroke-width=\"0.7\""),
        );
        let unknown = format!("(layer {}, by another index)", layer_number(chart, file.layer));
        let path = file.path.as_deref().unwrap_or(&unknown);
        let touched = of_file(number);
        let words = format!("{} · {touched} of {}", end_of(path, NAME), file.pages);
        let title = format!("{path}: {touched} of {} pages", file.pages);
        let more = format!(" fill=\"{colour}\" font-size=\"11.5\"");
        xml.text_with((x, place + 4.0), &more, &words, Some(&title));
    }
    if chart.files.len() > NAMED {
        xml.text(
            (x, PLOT_HEIGHT + 22.0),
            " fill=\"#555555\" font-size=\"11.5\"",
            &format!("and {} files with fewer pages", chart.files.len() - NAMED),
        );
    }
}

fn layer_number(chart: &Chart, layer: usize) -> usize {
    chart.layers.get(layer).map_or(0, |layer| layer.number)
}

/// Draws the colour of each layer, and the meaning of the shades.
fn legend(xml: &mut Xml, chart: &Chart) {
    let top = TOP + PLOT_HEIGHT + 84.0;
    let mut entries: Vec<(Option<usize>, String)> = Vec::new();
    for (number, layer) in chart.layers.iter().enumerate().take(LISTED) {
        entries.push((Some(number), of_layer(chart, number, layer)));
    }
    if let Some(more) = chart.layers.len().checked_sub(LISTED).filter(|more| *more > 0) {
        entries.push((None, format!("and {more} more layers")));
    }
    for (place, (number, words)) in entries.iter().enumerate() {
        let x = LEFT + (place / COLUMN) as f64 * 430.0;
        let y = top + (place % COLUMN) as f64 * 19.0;
        if let Some(number) = number {
            xml.rect(
                [x, y - 10.0, 12.0, 12.0],
                &format!(" fill=\"{}\"", colour(*number)),
            );
        }
        xml.text((x + 19.0, y), "", words);
    }
    if chart.service.runs > 1 {
        let y = top + COLUMN as f64 * 19.0 + 8.0;
        let swatch = |xml: &mut Xml, x: f64, more: &str, words: &str| {
            xml.rect([x, y - 10.0, 12.0, 12.0], &format!(" fill=\"#222222\"{more}"));
            xml.text((x + 19.0, y), "", words);
        };
        swatch(xml, LEFT, "", "read by each run");
        let pale = format!(" fill-opacity=\"{UNSTEADY}\"");
        swatch(xml, LEFT + 430.0, &pale, "read by some runs");
    }
}

fn of_layer(chart: &Chart, number: usize, layer: &ChartLayer) -> String {
    let touched = chart.files.iter().filter(|file| file.layer == number).count();
    let is_of = |file: usize| chart.files.get(file).is_some_and(|file| file.layer == number);
    let marks = chart.marks.iter().filter(|mark| is_of(mark.file));
    let pages: u64 = marks.map(|mark| mark.pages).sum();
    let files = match layer.files {
        Some(files) => format!("{touched} of {files} files"),
        None => "files not known by this index".to_owned(),
    };
    format!(
        "layer {} ({}): {files}, {pages} pages",
        layer.number,
        layer.layer.short()
    )
}

#[cfg(test)]
mod tests {
    use xebec_recordings::chart::{ChartFile, Mark};
    use xebec_recordings::summary::RecordedService;

    use super::*;

    /// So many runs of one page, in `files` files of two layers, each read all over the place.
    fn chart(files: usize, runs: u64, name: &str) -> Chart {
        let layer = |number| ChartLayer {
            layer: format!("sha256:{number:064x}").parse().unwrap(),
            number,
            files: Some(files),
        };
        let file = |number: usize| ChartFile {
            layer: number % 2,
            path: Some(format!("{name}{number}")),
            pages: 10 + runs,
        };
        let mut files: Vec<ChartFile> = (0..files).map(file).collect();
        files.sort_by_key(|file| file.layer);
        let marks = (0..runs).map(|at| Mark {
            file: (at as usize * 7) % files.len(),
            first: (at * 5) % (10 + runs),
            pages: 1,
            at,
            steady: at % 3 > 0,
        });
        Chart {
            reference: format!("registry.example.com/{name}"),
            image_bytes: 100_000_000,
            service: RecordedService {
                recording: format!("sha256:{:064x}", 7).parse().unwrap(),
                kept: true,
                in_registry: true,
                own: true,
                trust: None,
                root: None,
                refused: None,
                argv: vec![name.to_owned(), "--verbose".to_owned()],
                env: Default::default(),
                probe: "port:80".to_owned(),
                predicted: false,
                recorded: 0,
                runs: 3,
                pages: runs,
                steady_pages: runs / 2,
                stored_bytes: 1_300_000,
            },
            layers: vec![layer(1), layer(4)],
            marks: marks.collect(),
            files,
        }
    }

    /// The rectangles that stand for pages: those between the groups of pages and their ends.
    fn rects(picture: &str) -> usize {
        let groups = picture.split("<g class=\"pages").skip(1);
        groups
            .filter_map(|group| group.split("</g>").next())
            .map(|group| group.matches("<rect").count())
            .sum()
    }

    #[test]
    fn every_run_is_a_rectangle() {
        for runs in [1, 918, 10_000] {
            let picture = draw(&chart(90, runs, "/usr/lib/python3/numpy/core/module"));
            assert_eq!(rects(&picture), runs as usize);
            assert!(picture.len() < 1_000_000, "{} bytes", picture.len());
            assert_eq!(picture.matches("<g").count(), picture.matches("</g>").count());
        }
    }

    #[test]
    fn a_picture_of_a_giant_stays_small() {
        let picture = draw(&chart(9_000, 200_000, "/opt/model/weights"));
        assert!((1_000..=layout::MAX_RECTS).contains(&rects(&picture)));
        assert!(picture.len() < 1_000_000, "{} bytes", picture.len());
    }

    #[test]
    fn names_are_no_markup() {
        let picture = draw(&chart(3, 5, "<b>&\"'\u{1}"));
        for bad in ["<b>", "&\"", "\u{1}"] {
            assert!(!picture.contains(bad), "{bad:?}");
        }
        assert!(
            picture.contains("&lt;b&gt;&amp;&quot;&#39;\u{fffd}2"),
            "{picture}"
        );
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let mut empty = chart(1, 1, "x");
        empty.marks.clear();
        empty.files.clear();
        empty.layers.clear();
        let picture = draw(&empty);
        assert_eq!(rects(&picture), 0);
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }
}
