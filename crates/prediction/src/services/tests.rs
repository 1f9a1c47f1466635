use std::collections::BTreeMap;

use super::*;
use crate::pages::tests::{Is, files, layer};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn service(argv: &str, recorded: u64, recorder: &str, pages: &[u64]) -> Service {
    let mut touched = Vec::new();
    pages
        .iter()
        .for_each(|page| seen_once((0, *page)).push_onto(&mut touched));
    Service {
        key: ServiceKey {
            argv: words(argv),
            env: BTreeMap::new(),
        },
        probe: "port 80".to_owned(),
        recorded,
        runs: 3,
        recorder: recorder.to_owned(),
        touched,
    }
}

/// A file of four pages that stays, one that goes, and one of four pages that has two now and is the same as another one.
fn versions() -> (Files, Files) {
    let old = [
        ("a", Is::File(3)),
        ("b", Is::File(7)),
        ("c", Is::File(11)),
        ("d", Is::File(5)),
    ];
    let new = [("0", Is::File(1)), ("a", Is::File(3)), ("c", Is::File(5))];
    (files(&[layer(0, &old)]), files(&[layer(1, &new)]))
}

fn predicted(services: &[Service]) -> Vec<(String, Vec<u64>)> {
    let (old, new) = versions();
    let recorded: Vec<Recorded<'_>> = services
        .iter()
        .map(|service| Recorded {
            service,
            numbers: &[Some(0)],
        })
        .collect();
    let (entrypoint, before, now) = (words("web"), words("-p 1"), words("-p 2"));
    let own = |command| OwnCommand {
        entrypoint: &entrypoint,
        command,
    };
    let services = predict(&recorded, (&old, &new), (&own(&before), &own(&now)), "xebec 1");
    let told = services.iter().map(|service| {
        assert!(service.is_predicted() && service.runs == 1 && service.probe == "port 80");
        let pages = pages(service).map(|(_, page)| page).collect();
        (
            format!("{} {}", service.key.argv.join(" "), service.recorded),
            pages,
        )
    });
    told.collect()
}

#[test]
fn the_order_stays_and_each_page_is_named_once() {
    // Pages of the earlier version: a 0 to 3, b 4 to 7, c 8 to 11, d 12 and 13. Of the new one: 0 0 and 1, a 2 to 5, c 6 and 7.
    let all = [service("web -p 1", 5, "xebec 1", &[9, 2, 4, 0, 13, 10, 3])];
    assert_eq!(predicted(&all), [("web -p 2 5".to_owned(), vec![7, 4, 2, 5])]);
}

#[test]
fn what_was_recorded_counts_before_what_was_predicted_and_then_the_newer() {
    let all = [
        service("web -p 1", 9, "xebec 1 predict", &[0]),
        service("web -p 1", 4, "xebec 1", &[1]),
        service("web -p 1", 5, "xebec 1 merge", &[2]),
        service("web job", 7, "xebec 1 predict", &[3]),
        service("web gone", 7, "xebec 1", &[4]),
    ];
    let wanted = [
        ("web -p 2 5".to_owned(), vec![4]),
        ("web job 7".to_owned(), vec![5]),
    ];
    assert_eq!(predicted(&all), wanted);
}

#[test]
fn pages_that_cannot_be_had_are_left_out() {
    let all = vec![service("a", 1, "", &[1, 2, 3]), service("b", 1, "", &[2])];
    let left = without(all, &BTreeSet::from([(0, 2)]));
    assert_eq!(left.len(), 1);
    assert_eq!(pages(&left[0]).collect::<Vec<_>>(), [(0, 1), (0, 3)]);
}

#[test]
fn hostile_services_are_bounded() {
    let large = |number: u64| {
        let mut service = service(&format!("web {number}"), number, "", &[]);
        let (layer, first, pages) = (0, 0, u32::MAX);
        let run = PageRun { layer, first, pages };
        service.touched = vec![SeenRun { run, seen: 1 }];
        service
    };
    let all: Vec<Service> = (0..100).map(large).collect();
    // The first of them takes all pages that are looked at.
    assert_eq!(predicted(&all).len(), 1);
}
