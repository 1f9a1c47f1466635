//! Checks that a [`Recording`] keeps what its types promise, so that planning and loading by it need no checks of their own.

use std::collections::HashSet;

use super::limits::{
    MAX_INDEXES, MAX_LAYERS, MAX_NOTE, MAX_PAGES, MAX_RUNS, MAX_SEGMENT_PAGES, MAX_SEGMENT_STORED,
    MAX_SEGMENTS, MAX_SERVICES, MAX_TEXTS, MAX_WORD, MAX_WORDS, MAX_ZONES, TEXT_COST,
};
use super::places::{Places, listed, overlap};
use super::{PageRun, Recording, SeenRun, Segment, Service, ServiceKey};
use crate::PAGE_SIZE;
use crate::layer::limits::{MAX_DATA, MAX_FILE};

/// A contradiction in a recording.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidRecording {
    /// Something of a layer.
    #[error("layer {number} of the recording {problem}")]
    Layer {
        /// Which, counted from 0.
        number: usize,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of a service.
    #[error("service {number} of the recording {problem}")]
    Service {
        /// Which, counted from 0.
        number: usize,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of a zone.
    #[error("zone {number} of the recording {problem}")]
    Zone {
        /// Which, counted from 0.
        number: usize,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of an index that a zone carries.
    #[error("index {number} of the recording {problem}")]
    Index {
        /// Which, counted from 0.
        number: usize,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of a segment.
    #[error("segment {number} of the recording {problem}")]
    Segment {
        /// Which, counted from 0.
        number: usize,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of the recording as a whole.
    #[error("the recording {0}")]
    Recording(&'static str),
}

impl Recording {
    /// Checks every promise of the types: counts and lengths within [`super::limits`]; runs inside their data spaces and
    /// no page held twice; segments ascending inside their zones; services with pages that are held, each once.
    ///
    /// [`Recording::decode`] does this; code that makes a recording does it before publishing.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), InvalidRecording> {
        self.check_layers()?;
        self.check_zones()?;
        self.check_indexes()?;
        self.check_segments()?;
        self.check_runs(&self.zeros).map_err(|problem| match problem {
            Problem::Outside => InvalidRecording::Recording("has zeros outside their layer's data space"),
            Problem::Divided => InvalidRecording::Recording("has neighbouring zeros that are not one run"),
        })?;
        let (mut runs, mut pages) = (0, 0u64);
        for (_, run) in listed(self) {
            runs += 1;
            pages = pages.saturating_add(u64::from(run.pages));
        }
        ensure(pages <= MAX_PAGES, "has too many pages")?;
        ensure(runs <= MAX_RUNS, "has too many runs of pages")?;
        let places = Places::of(self);
        ensure(!places.overlap(), "has a page twice in its segments and zeros")?;
        self.check_services(&places, runs)
    }

    fn check_layers(&self) -> Result<(), InvalidRecording> {
        ensure(self.layers.len() as u64 <= MAX_LAYERS, "has too many layers")?;
        let mut known = HashSet::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let bad = |problem| Err(InvalidRecording::Layer { number, problem });
            if !known.insert(layer.layer) {
                return bad("is there twice");
            }
            if !layer.data_size.is_multiple_of(PAGE_SIZE) || layer.data_size > MAX_DATA {
                return bad("has a data space that is too large or ends inside a page");
            }
        }
        Ok(())
    }

    fn check_zones(&self) -> Result<(), InvalidRecording> {
        ensure(self.zones.len() as u64 <= MAX_ZONES, "has too many zones")?;
        let mut known = HashSet::new();
        for (number, zone) in self.zones.iter().enumerate() {
            let bad = |problem| Err(InvalidRecording::Zone { number, problem });
            if !known.insert(zone.digest) {
                return bad("is there twice");
            }
            if zone.size > MAX_FILE {
                return bad("is larger than a file can be");
            }
        }
        Ok(())
    }

    fn check_indexes(&self) -> Result<(), InvalidRecording> {
        ensure(self.indexes.len() as u64 <= MAX_INDEXES, "has too many indexes")?;
        let mut known = HashSet::new();
        for (number, index) in self.indexes.iter().enumerate() {
            let bad = |problem| Err(InvalidRecording::Index { number, problem });
            let zone = self.zones.get(usize::from(index.zone));
            if index.length == 0 || zone.is_none_or(|zone| index.end() > zone.size) {
                return bad("is in no listed zone, or reaches over the end of it");
            }
            if usize::from(index.layer) >= self.layers.len() {
                return bad("is of a layer that is not listed");
            }
            if !known.insert((index.layer, index.zone)) {
                return bad("is twice in a zone");
            }
        }
        Ok(())
    }

    fn check_segments(&self) -> Result<(), InvalidRecording> {
        ensure(
            self.segments.len() as u64 <= MAX_SEGMENTS,
            "has too many segments",
        )?;
        let mut last: Option<&Segment> = None;
        for (number, segment) in self.segments.iter().enumerate() {
            let bad = |problem| InvalidRecording::Segment { number, problem };
            let zone = self.zones.get(usize::from(segment.zone));
            let zone = zone.ok_or(bad("is in a zone that is not listed"))?;
            if segment.length == 0 || u64::from(segment.length) > MAX_SEGMENT_STORED {
                return Err(bad("has no compressed bytes or more than a segment may"));
            }
            if segment.end() > zone.size {
                return Err(bad("reaches over the end of its zone"));
            }
            let from = (segment.zone, segment.offset);
            if last.is_some_and(|last| from < (last.zone, last.end())) {
                return Err(bad("overlaps the one before it or does not come after it"));
            }
            if segment.runs.is_empty() || segment.pages() > MAX_SEGMENT_PAGES {
                return Err(bad("has no pages or more than a segment may"));
            }
            self.check_runs(&segment.runs)
                .map_err(|problem| bad(problem.text()))?;
            last = Some(segment);
        }
        Ok(())
    }

    /// Checks the runs of one list.
    fn check_runs(&self, runs: &[PageRun]) -> Result<(), Problem> {
        let mut last: Option<&PageRun> = None;
        for run in runs {
            self.check_run(run)?;
            if last.is_some_and(|last| run.continues(last)) {
                return Err(Problem::Divided);
            }
            last = Some(run);
        }
        Ok(())
    }

    fn check_run(&self, run: &PageRun) -> Result<(), Problem> {
        let layer = self.layers.get(usize::from(run.layer));
        let there = layer.is_some_and(|layer| run.end() <= layer.data_size / PAGE_SIZE);
        if there && run.pages > 0 {
            Ok(())
        } else {
            Err(Problem::Outside)
        }
    }

    fn check_services(&self, places: &Places, mut runs: u64) -> Result<(), InvalidRecording> {
        ensure(
            self.services.len() as u64 <= MAX_SERVICES,
            "has too many services",
        )?;
        let mut known = HashSet::new();
        let mut texts = 0;
        for (number, service) in self.services.iter().enumerate() {
            let bad = |problem| InvalidRecording::Service { number, problem };
            texts += check_texts(service).map_err(bad)?;
            if !known.insert(&service.key) {
                return Err(bad("is there twice"));
            }
            runs = runs.saturating_add(self.check_touched(service, places).map_err(bad)?);
        }
        ensure(texts <= MAX_TEXTS, "has too many bytes of texts")?;
        ensure(runs <= MAX_RUNS, "has too many runs of pages")
    }

    /// Checks the pages of a service; the number of runs that segments and zeros split them into.
    fn check_touched(&self, service: &Service, places: &Places) -> Result<u64, &'static str> {
        let mut parts = 0;
        for touched in &service.touched {
            self.check_run(&touched.run).map_err(Problem::text)?;
            if touched.seen == 0 || touched.seen > service.runs {
                return Err("has pages that were seen in no run or in more than there were");
            }
            let mut held = 0;
            for (part, _) in places.parts(touched.run) {
                held += u64::from(part.pages);
                parts += 1;
            }
            if held != u64::from(touched.run.pages) {
                return Err("has pages that are in no segment and not among the zeros");
            }
        }
        let divided = |pair: &[SeenRun]| match pair {
            [last, next] => last.seen == next.seen && next.run.continues(&last.run),
            _ => false,
        };
        if service.touched.windows(2).any(divided) {
            return Err(Problem::Divided.text());
        }
        let mut ascending: Vec<PageRun> = service.touched.iter().map(|touched| touched.run).collect();
        ascending.sort_unstable_by_key(|run| (run.layer, run.first));
        if overlap(ascending.into_iter()) {
            return Err("has a page twice");
        }
        Ok(parts)
    }
}

/// A defect of a list of runs.
enum Problem {
    Outside,
    Divided,
}

impl Problem {
    fn text(self) -> &'static str {
        match self {
            Self::Outside => "has a run of no pages, or of pages outside the data space of a listed layer",
            Self::Divided => "has neighbouring pages that are not one run",
        }
    }
}

fn ensure(holds: bool, problem: &'static str) -> Result<(), InvalidRecording> {
    if holds {
        Ok(())
    } else {
        Err(InvalidRecording::Recording(problem))
    }
}

/// Checks the fields of a service other than pages. Returns the bytes that its texts count for (see [`TEXT_COST`]).
fn check_texts(service: &Service) -> Result<u64, &'static str> {
    let ServiceKey { argv, env } = &service.key;
    if argv.is_empty() || argv.len() as u64 > MAX_WORDS || env.len() as u64 > MAX_WORDS {
        return Err("has no arguments, or too many arguments or variables");
    }
    let mut bytes = service.probe.len() + service.recorder.len();
    for word in argv {
        if word.len() > MAX_WORD || word.contains('\0') {
            return Err("has an argument that is too long or contains NUL");
        }
        bytes += word.len() + TEXT_COST;
    }
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err("has a variable with a bad name");
        }
        if name.len() + 1 + value.len() > MAX_WORD || value.contains('\0') {
            return Err("has a variable that is too long or contains NUL");
        }
        bytes += name.len() + value.len() + 2 * TEXT_COST;
    }
    if service.probe.len() > MAX_NOTE || service.recorder.len() > MAX_NOTE {
        return Err("has a probe or recorder that is too long");
    }
    if service.runs == 0 {
        return Err("was never run");
    }
    Ok(bytes as u64)
}
