//! Reads the services: what was run, and its pages by their places.

use std::collections::BTreeMap;

use super::{DecodeError, length, limit};
use crate::columns::{Column, ColumnError};
use crate::runtime_image::encode::{IN_SEGMENTS, IN_ZEROS, NextPlace, PlacedRun};
use crate::runtime_image::limits::{MAX_NOTE, MAX_RUNS, MAX_TEXTS, MAX_WORD, MAX_WORDS, TEXT_COST};
use crate::runtime_image::{InvalidRecording, PageRun, SeenRun, Segment, Service, ServiceKey};

/// Reads `count` services, whose pages `segments` and `zeros` list.
pub(super) fn read(
    count: usize,
    body: &mut Column<'_>,
    segments: &[Segment],
    zeros: &[PageRun],
) -> Result<Vec<Service>, DecodeError> {
    let mut facts = body.column("facts of services")?;
    let mut texts = Texts::new(body)?;
    let in_segments = segments.iter().flat_map(|segment| &segment.runs);
    let mut touched = Touched {
        lists: body.column("lists of touched pages")?,
        starts: body.column("places of touched pages")?,
        pages: body.column("lengths of touched pages")?,
        seen: body.column("how often pages were seen")?,
        in_segments: List::of(in_segments),
        in_zeros: List::of(zeros),
        count: 0,
    };
    let mut services = Vec::new();
    for number in 0..count {
        let recorded = facts.number()?;
        let runs = facts.byte()?;
        let placed = facts.count(MAX_RUNS)?;
        services.push(Service {
            key: texts.key(number)?,
            probe: texts.text(MAX_NOTE)?,
            recorded,
            runs,
            recorder: texts.text(MAX_NOTE)?,
            touched: touched.take(placed)?,
        });
    }
    facts.finish()?;
    texts.finish()?;
    touched.finish()?;
    Ok(services)
}

struct Texts<'a> {
    lengths: Column<'a>,
    texts: Column<'a>,
    cost: u64,
}

impl<'a> Texts<'a> {
    fn new(body: &mut Column<'a>) -> Result<Self, ColumnError> {
        Ok(Self {
            lengths: body.column("lengths of texts")?,
            texts: body.column("texts")?,
            cost: 0,
        })
    }

    fn text(&mut self, limit_of_one: usize) -> Result<String, DecodeError> {
        let length = self.lengths.count(limit_of_one as u64)?;
        self.cost += (length + TEXT_COST) as u64;
        limit("the bytes of all texts", self.cost, MAX_TEXTS)?;
        let bytes = self.texts.bytes(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Text)?;
        Ok(text.to_owned())
    }

    fn key(&mut self, number: usize) -> Result<ServiceKey, DecodeError> {
        let mut argv = Vec::new();
        for _ in 0..self.lengths.count(MAX_WORDS)? {
            argv.push(self.text(MAX_WORD)?);
        }
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..self.lengths.count(MAX_WORDS)? {
            let (name, value) = (self.text(MAX_WORD)?, self.text(MAX_WORD)?);
            // One meaning, one encoding.
            if env.last_key_value().is_some_and(|(last, _)| *last >= name) {
                let problem = "has variables that do not ascend by name";
                return Err(InvalidRecording::Service { number, problem }.into());
            }
            env.insert(name, value);
        }
        Ok(ServiceKey { argv, env })
    }

    fn finish(self) -> Result<(), ColumnError> {
        self.lengths.finish()?;
        self.texts.finish()
    }
}

/// The pages that segments (or zeros) list, to be found by their place in that list.
struct List {
    /// Each run with the number of pages before it.
    runs: Vec<(u64, PageRun)>,
    pages: u64,
}

impl List {
    fn of<'r>(runs: impl IntoIterator<Item = &'r PageRun>) -> Self {
        let mut pages = 0u64;
        let runs = runs.into_iter().map(|run| {
            let before = pages;
            pages = pages.saturating_add(run.pages.into());
            (before, *run)
        });
        Self {
            runs: runs.collect(),
            pages,
        }
    }

    /// The runs at the places `start..end`, the first and the last one cut.
    fn at(&self, start: u64, end: u64) -> impl Iterator<Item = PageRun> + '_ {
        let from = self
            .runs
            .partition_point(|(before, run)| before.saturating_add(run.pages.into()) <= start);
        let near = self.runs.get(from..).unwrap_or_default().iter();
        near.take_while(move |(before, _)| *before < end)
            .filter_map(move |(before, run)| {
                let skipped = start.saturating_sub(*before);
                let pages = u64::from(run.pages)
                    .min(end - before)
                    .checked_sub(skipped)
                    .filter(|pages| *pages > 0)?;
                Some(PageRun {
                    layer: run.layer,
                    first: run.first.checked_add(skipped)?,
                    pages: u32::try_from(pages).ok()?,
                })
            })
    }
}

struct Touched<'a> {
    lists: Column<'a>,
    starts: Column<'a>,
    pages: Column<'a>,
    seen: Column<'a>,
    in_segments: List,
    in_zeros: List,
    /// Parts so far, of all services.
    count: u64,
}

impl Touched<'_> {
    fn take(&mut self, count: usize) -> Result<Vec<SeenRun>, DecodeError> {
        let mut touched = Vec::new();
        let mut next = NextPlace::default();
        for _ in 0..count {
            let placed = self.placed(&next)?;
            next.after(&placed);
            let list = match placed.list {
                IN_SEGMENTS => &self.in_segments,
                _ => &self.in_zeros,
            };
            let end = placed.start.saturating_add(placed.pages);
            limit("the place of a touched page", end, list.pages)?;
            for run in list.at(placed.start, end) {
                self.count += 1;
                limit("runs of touched pages", self.count, MAX_RUNS)?;
                let seen = placed.seen;
                SeenRun { run, seen }.push_onto(&mut touched);
            }
        }
        Ok(touched)
    }

    fn placed(&mut self, next: &NextPlace) -> Result<PlacedRun, DecodeError> {
        let list = self.lists.byte()?;
        if list != IN_SEGMENTS && list != IN_ZEROS {
            return Err(DecodeError::Unknown {
                what: "list of pages",
                value: list.into(),
            });
        }
        Ok(PlacedRun {
            list,
            start: self.starts.difference(next.of(list))?,
            pages: length(&mut self.pages)?,
            seen: self.seen.byte()?,
        })
    }

    fn finish(self) -> Result<(), ColumnError> {
        self.lists.finish()?;
        self.starts.finish()?;
        self.pages.finish()?;
        self.seen.finish()
    }
}
