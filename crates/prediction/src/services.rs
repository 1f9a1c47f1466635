//! From recorded services to predicted ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use xebec_format::runtime_image::{PREDICTED, PageRun, SeenRun, Service, ServiceKey};

use crate::command::{self, OwnCommand};
use crate::files::{Files, Page};
use crate::pages::Mapping;

/// Pages of all predicted services, each once: 128 MiB, several times what a large service reads at its start.
pub const MOST_PAGES: usize = 32 << 10;
/// Services that are predicted, the newest first.
pub const MOST_SERVICES: usize = 32;
/// Pages of recordings that are looked at, those of several services each time.
const MOST_LOOKED_AT: usize = 1 << 20;

/// A service that was recorded for the earlier version.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// The service.
    pub service: &'a Service,
    /// For each layer of its recording its number among the image's different layers; `None` for a layer that the image has not.
    pub numbers: &'a [Option<u16>],
}

impl Recorded<'_> {
    fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        let runs = self.service.touched.iter().map(|seen| seen.run);
        runs.filter_map(|run| Some((*self.numbers.get(usize::from(run.layer))?.as_ref()?, run)))
            .flat_map(|(layer, run)| (run.first..run.end()).map(move |page| (layer, page)))
    }
}

/// The services that the new version is predicted to have, with their pages in it. `commands` are those that the earlier and the new
/// version run by themselves; `program` is the name and version of the program that predicts.
///
/// A service that was recorded counts before one that was itself predicted, then the newer one. A service of which no page is left is
/// left out.
pub fn predict(
    recorded: &[Recorded<'_>],
    (old, new): (&Files, &Files),
    commands: (&OwnCommand<'_>, &OwnCommand<'_>),
    program: &str,
) -> Vec<Service> {
    let chosen = chosen(recorded, commands);
    let looked_at = || {
        let pages = chosen.iter().enumerate();
        let pages = pages.flat_map(|(place, (recorded, _))| recorded.pages().map(move |page| (place, page)));
        pages.take(MOST_LOOKED_AT)
    };
    let mapping = Mapping::new(old, new, looked_at().map(|(_, page)| page));
    let mut all: HashSet<Page> = HashSet::new();
    let mut touched: Vec<(HashSet<Page>, Vec<SeenRun>)> = vec![Default::default(); chosen.len()];
    for (place, page) in looked_at() {
        let (Some(page), Some((own, runs))) = (mapping.page(page), touched.get_mut(place)) else {
            continue;
        };
        let has_room = all.len() < MOST_PAGES || all.contains(&page);
        // Two files of the earlier version may be one file now.
        if has_room && own.insert(page) {
            all.insert(page);
            seen_once(page).push_onto(runs);
        }
    }
    let services = chosen
        .into_iter()
        .zip(touched)
        .map(|((recorded, key), (_, touched))| Service {
            key,
            probe: recorded.service.probe.clone(),
            // As if it were as old as what it comes from: each recording of the new version is newer.
            recorded: recorded.service.recorded,
            runs: 1,
            recorder: format!("{program}{PREDICTED}"),
            touched,
        });
    services.filter(|service| !service.touched.is_empty()).collect()
}

/// The services that are carried over, each once, with the names that they have in the new version.
fn chosen<'a>(
    recorded: &[Recorded<'a>],
    (old, new): (&OwnCommand<'_>, &OwnCommand<'_>),
) -> Vec<(Recorded<'a>, ServiceKey)> {
    let mut order = recorded.to_vec();
    order.sort_by_key(|recorded| {
        (
            recorded.service.is_predicted(),
            Reverse(recorded.service.recorded),
        )
    });
    let mut known: BTreeMap<ServiceKey, ()> = BTreeMap::new();
    let mut chosen = Vec::new();
    for recorded in order {
        let key = &recorded.service.key;
        let Some(argv) = command::carried(&key.argv, old, new) else {
            continue;
        };
        let key = ServiceKey {
            argv,
            env: key.env.clone(),
        };
        if chosen.len() < MOST_SERVICES && known.insert(key.clone(), ()).is_none() {
            chosen.push((recorded, key));
        }
    }
    chosen
}

/// The same services without pages that cannot be had, and without those that have no others.
pub fn without(services: Vec<Service>, missing: &BTreeSet<Page>) -> Vec<Service> {
    if missing.is_empty() {
        return services;
    }
    let left = services.into_iter().map(|service| {
        let mut touched = Vec::new();
        for page in pages(&service).filter(|page| !missing.contains(page)) {
            seen_once(page).push_onto(&mut touched);
        }
        Service { touched, ..service }
    });
    left.filter(|service| !service.touched.is_empty()).collect()
}

/// The pages of a predicted service, in the order of first access.
pub fn pages(service: &Service) -> impl Iterator<Item = Page> + '_ {
    let runs = service.touched.iter().map(|seen| seen.run);
    runs.flat_map(|run| (run.first..run.end()).map(move |page| (run.layer, page)))
}

fn seen_once((layer, first): Page) -> SeenRun {
    let run = PageRun {
        layer,
        first,
        pages: 1,
    };
    SeenRun { run, seen: 1 }
}

#[cfg(test)]
mod tests;
