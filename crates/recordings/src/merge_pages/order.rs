//! Pages in order: lists that are united, and a zone in which services find theirs close together.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use xebec_format::runtime_image::{PageRun, Service};

use crate::profile::Profile;

/// A page, by the place of its layer.
pub(crate) type Page = (u16, u64);

/// The pages of a run.
pub(crate) fn pages(run: &PageRun) -> impl Iterator<Item = Page> + use<> {
    let layer = run.layer;
    (run.first..run.end()).map(move |page| (layer, page))
}

/// `order` with the pages that only `other` has, each behind the page that it comes after there.
pub(super) fn interleaved(order: Vec<Page>, other: &[Page]) -> Vec<Page> {
    let known: HashSet<Page> = order.iter().copied().collect();
    let mut new: HashSet<Page> = HashSet::new();
    let mut behind: HashMap<Option<Page>, Vec<Page>> = HashMap::new();
    let mut last = None;
    for page in other {
        if known.contains(page) {
            last = Some(*page);
        } else if new.insert(*page) {
            behind.entry(last).or_default().push(*page);
        }
    }
    let mut all = behind.remove(&None).unwrap_or_default();
    for page in order {
        all.push(page);
        all.extend(behind.remove(&Some(page)).unwrap_or_default());
    }
    all
}

/// At most `limit` of the pages, those that were seen most often; in their order.
pub(super) fn most_often(order: &[Page], times: &HashMap<Page, usize>, limit: u64) -> Vec<Page> {
    let mut by_times: Vec<&Page> = order.iter().collect();
    by_times.sort_by_key(|page| Reverse(times.get(*page)));
    let chosen: HashSet<&Page> = by_times
        .into_iter()
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .collect();
    order
        .iter()
        .copied()
        .filter(|page| chosen.contains(page))
        .collect()
}

/// The pages of all services in the order in which they are to stand in a zone, so that those of each service are close
/// together: first pages that only one needs, then pages that several need, then those that each of the others needs alone. With
/// two services both find theirs in one piece. Each part is in the order of first access.
pub(crate) fn arranged(services: &[Service]) -> Vec<PageRun> {
    let of_service = |service: &Service| -> Vec<Page> {
        service.touched.iter().flat_map(|seen| pages(&seen.run)).collect()
    };
    let mut users: HashMap<Page, usize> = HashMap::new();
    let mut all: Vec<Vec<Page>> = services.iter().map(of_service).collect();
    for page in all.iter().flatten() {
        *users.entry(*page).or_default() += 1;
    }
    let is_alone = |page: &Page| users.get(page) == Some(&1);
    // The one with most of its own goes first: nobody else has to read over that.
    all.sort_by_key(|pages| Reverse(pages.iter().filter(|page| is_alone(page)).count()));
    let mut order: Vec<Page> = Vec::new();
    if let [only] = all.as_slice() {
        order.clone_from(only);
    } else {
        let alone = |pages: &[Page]| -> Vec<Page> { pages.iter().copied().filter(is_alone).collect() };
        let mut parts = all.iter();
        order.extend(parts.next().map(|first| alone(first)).unwrap_or_default());
        order.extend(all.iter().flatten().filter(|page| !is_alone(page)));
        order.extend(parts.flat_map(|pages| alone(pages)));
    }
    Profile::runs(order)
}

#[cfg(test)]
mod tests {
    use xebec_format::runtime_image::{SeenRun, ServiceKey};

    use super::*;

    fn list(pages: &[u64]) -> Vec<Page> {
        pages.iter().map(|page| (0, *page)).collect()
    }

    #[test]
    fn new_pages_come_behind_those_that_they_followed() {
        let united = |one: &[u64], other: &[u64]| interleaved(list(one), &list(other));
        assert_eq!(
            united(&[1, 2, 3], &[9, 1, 7, 8, 3, 5]),
            list(&[9, 1, 7, 8, 2, 3, 5])
        );
        assert_eq!(united(&[1, 2, 3], &[3, 7, 1, 8, 2]), list(&[1, 8, 2, 3, 7]));
        assert_eq!(united(&[], &[4, 3, 4]), list(&[4, 3]));
        assert_eq!(united(&[1], &[]), list(&[1]));
    }

    #[test]
    fn the_most_often_seen_in_their_order() {
        let times: HashMap<Page, usize> = list(&[5, 1, 4, 2]).into_iter().zip([1, 3, 1, 2]).collect();
        let order = list(&[5, 1, 4, 2]);
        let most = |limit| most_often(&order, &times, limit);
        assert_eq!(most(2), list(&[1, 2]));
        assert_eq!(most(3), list(&[5, 1, 2]), "of equals the first");
        assert_eq!((most(0), most(u64::MAX)), (list(&[]), order.clone()));
    }

    fn service(name: &str, pages: &[u64]) -> Service {
        let runs = Profile::runs(list(pages));
        Service {
            key: ServiceKey {
                argv: vec![name.to_owned()],
                env: Default::default(),
            },
            probe: String::new(),
            recorded: 0,
            runs: 1,
            recorder: String::new(),
            touched: runs.into_iter().map(|run| SeenRun { run, seen: 1 }).collect(),
        }
    }

    #[test]
    fn services_find_their_pages_together() {
        let order =
            |services: &[Service]| -> Vec<Page> { arranged(services).iter().flat_map(pages).collect() };
        let one = service("one", &[50, 10, 51, 11]);
        assert_eq!(order(std::slice::from_ref(&one)), list(&[50, 10, 51, 11]));
        // Of the two the second has more of its own.
        let other = service("other", &[11, 90, 91, 10, 92]);
        assert_eq!(
            order(&[one.clone(), other.clone()]),
            list(&[90, 91, 92, 11, 10, 50, 51])
        );
        let third = service("third", &[10, 50, 7]);
        assert_eq!(
            order(&[one, other, third]),
            list(&[90, 91, 92, 11, 10, 50, 51, 7])
        );
    }
}
