//! The report of a start, and the profile that is learned from it, out of made-up facts.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "single runs are what this is about"
)]

use std::sync::Arc;

use xebec_fill::access_log::{Watch, Watchers};
use xebec_format::runtime_image::PageRun;

use super::*;
use crate::learning::profile;

const LAYERS: [u8; 2] = [1, 2];

fn key(number: u8) -> LayerKey {
    LayerKey {
        layer: Digest::from_bytes([number; 32]),
        index: Digest::from_bytes([9; 32]),
    }
}

fn set(number: u8, runs: &[Range<u64>]) -> PageSet {
    let mut set = PageSet::default();
    set.insert(key(number), runs.to_vec());
    set
}

/// A start by a recording of pages 0 to 100 of the first layer, of which the first ten were there and all others came; of
/// the second layer the first page was there.
fn facts() -> Facts {
    let mut present = set(1, &[0..100]);
    present.insert(key(2), vec![0..1]);
    Facts {
        reference: "example.com/app:1".to_owned(),
        manifest: Digest::of(b"image"),
        argv: vec!["service".to_owned()],
        layers: LAYERS
            .map(|number| RecordedLayer {
                layer: key(number).layer,
                index: key(number).index,
                data_size: 1000 * PAGE_SIZE,
            })
            .to_vec(),
        present,
        borrows: false,
        recorded: Some(Recorded {
            key: ServiceKey {
                argv: vec!["service".to_owned()],
                env: std::collections::BTreeMap::new(),
            },
            pages: set(1, &[0..100]),
            before: set(1, &[0..10]),
            after: set(1, &[0..100]),
        }),
        loaded: Some(Loaded::default()),
        began_ms: 5_000,
    }
}

fn over() -> Over {
    Over::told(Some("web".to_owned()), Some(5_100))
}

/// A start that read pages 0 to 60 of its recording and asked for these, by layer and pages.
fn seen(asked: &[(u16, Range<u64>)]) -> Seen {
    let watch = Arc::new(Watch::new(0));
    let watchers = [Watchers::default(), Watchers::default()];
    for (number, one) in (0..).zip(&watchers) {
        one.add(number, watch.clone());
    }
    for (layer, pages) in asked {
        let bytes = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;
        watchers[usize::from(*layer)].note(i32::MAX, &bytes);
    }
    Seen {
        container_run: None,
        touched: Touched {
            pages: set(1, &[0..60]),
            looked_for: set(1, &[0..100]),
        },
        prefilled: Prefilled::default(),
        unnoticed: Some(Touched::default()),
        asked: watch.take(None),
        waits: Vec::new(),
        is_exact: true,
        is_shared: false,
    }
}

fn told(runs: &[PageRun]) -> Vec<(u16, Range<u64>)> {
    runs.iter().map(|run| (run.layer, run.first..run.end())).collect()
}

#[test]
fn pages_are_told_apart() {
    let seen = seen(&[(1, 0..3), (0, 70..72), (1, 2..4)]);
    let report = report(&facts(), &over(), &seen, None);
    assert_eq!((report.missed_pages, report.local_pages), (3, 1));
    let recorded = report.recorded.unwrap();
    let wanted = RecordedPages {
        pages: 100,
        present: 10,
        fetched: 90,
        late: 0,
        sample: None,
        touched: 62,
        unused: 38,
        fetched_unused: 38,
        unknown: 0,
    };
    assert_eq!(
        recorded, wanted,
        "what was asked for was read, whatever the page cache says"
    );
    assert_eq!(report.watched_ms, 100);

    let kept = profile(&facts(), &over(), &seen).unwrap();
    assert_eq!(told(&kept.missed), [(1, 0..4)]);
    assert_eq!(told(&kept.touched.unwrap()), [(0, 0..60), (0, 70..72)]);
}

#[test]
fn what_was_recorded_and_did_not_come_is_late_and_what_cannot_be_seen_unknown() {
    let mut facts = facts();
    facts.present = PageSet::default();
    if let Some(recorded) = &mut facts.recorded {
        (recorded.before, recorded.after) = (PageSet::default(), set(1, &[0..50]));
    }
    let mut seen = seen(&[(0, 50..55)]);
    seen.touched = Touched {
        pages: set(1, &[0..20]),
        looked_for: set(1, &[0..40]),
    };
    let recorded = report(&facts, &over(), &seen, None).recorded.unwrap();
    assert_eq!((recorded.late, recorded.touched, recorded.unused), (5, 25, 20));
    assert_eq!((recorded.fetched_unused, recorded.unknown), (20, 55));
    assert_eq!(profile(&facts, &over(), &seen).unwrap().touched, None);
}

#[test]
fn what_was_prefilled_is_like_the_sample_of_it() {
    // Pages 0 to 80 are prefilled but for each fourth of them, and the rest never came. Of the sample 15 to 20 were not read.
    let every_fourth: Vec<Range<u64>> = (0..20).map(|number| number * 4..number * 4 + 1).collect();
    let left_out = set(1, &every_fourth);
    let mut seen = seen(&[(0, 0..2)]);
    seen.prefilled = Prefilled {
        brought: set(1, &[0..80]).without(&left_out),
        left_out: left_out.clone(),
    };
    seen.touched = Touched {
        pages: set(1, &every_fourth[..15]),
        looked_for: set(1, &[0..100]).without(&seen.prefilled.brought),
    };
    let recorded = report(&facts(), &over(), &seen, None).recorded.unwrap();
    // Page 1 was asked for, so 59 are hidden, and like 19 of which 5 were not read: 16.
    assert_eq!((recorded.sample, recorded.unknown), (Some(19), 0));
    assert_eq!(
        (recorded.touched, recorded.unused),
        (2 + 19 + 59 - 5 - 16, 20 + 5 + 16)
    );
    assert_eq!(
        recorded.fetched_unused, 41,
        "the first ten, which were there, count as read"
    );
    let kept = profile(&facts(), &over(), &seen).unwrap();
    assert_eq!(kept.touched, None, "a sample is no profile");
    // Without a sample nothing is known about them.
    seen.prefilled.left_out = PageSet::default();
    let recorded = report(&facts(), &over(), &seen, None).recorded.unwrap();
    assert_eq!(
        (recorded.sample, recorded.unused, recorded.unknown),
        (None, 25, 59)
    );
}

#[test]
fn complete_layers_are_learned_from_the_page_cache() {
    let mut seen = seen(&[(1, 7..9)]);
    seen.unnoticed = Some(Touched {
        pages: set(2, &[8..11]),
        looked_for: set(2, &[0..1000]),
    });
    let mut facts = facts();
    facts.recorded = None;
    let kept = profile(&facts, &over(), &seen).unwrap();
    assert_eq!(told(&kept.missed), [(1, 7..11)]);
    assert_eq!(
        kept.touched,
        Some(Vec::new()),
        "nothing is recorded, and all that it read is known"
    );
    facts.borrows = true;
    assert_eq!(profile(&facts, &over(), &seen).unwrap().touched, None);
    assert_eq!(report(&facts, &over(), &seen, None).missed_pages, 4);
}

#[test]
fn nothing_is_learned_from_what_was_not_seen_whole() {
    let all = [
        (
            Seen {
                is_exact: false,
                ..seen(&[])
            },
            over(),
        ),
        (
            Seen {
                unnoticed: None,
                ..seen(&[])
            },
            over(),
        ),
        (seen(&[]), Over::told(None, None)),
    ];
    for (seen, over) in all {
        assert!(profile(&facts(), &over, &seen).is_err());
    }
    let shared = Seen {
        is_shared: true,
        ..seen(&[(1, 0..3)])
    };
    let kept = profile(&facts(), &over(), &shared).unwrap();
    assert_eq!((told(&kept.missed), kept.touched), (vec![(1, 0..3)], None));
}

#[test]
fn advice_is_given_where_it_helps() {
    let advice = |facts: &Facts, seen: &Seen| report(facts, &over(), seen, None).advice.unwrap_or_default();
    assert_eq!(
        advice(&facts(), &seen(&[(1, 1..10)])),
        "",
        "nine pages are too few"
    );
    assert!(advice(&facts(), &seen(&[(1, 1..60)])).contains("--merge"));
    let mut other = facts();
    other.loaded = None;
    other.recorded = None;
    assert_eq!(advice(&other, &seen(&[(1, 0..1)])), "");
    assert!(advice(&other, &seen(&[(1, 1..60)])).contains("xebec record"));
    other.loaded = Some(Loaded::refused("it is not signed".to_owned()));
    assert!(advice(&other, &seen(&[])).contains("not signed"));
    let mut unused = seen(&[]);
    unused.touched.pages = set(1, &[0..10]);
    assert!(advice(&facts(), &unused).contains("was not read"));
}

#[test]
fn what_was_recorded_for_an_earlier_version_is_not_called_unrecorded() {
    let mut facts = facts();
    facts.loaded = None;
    facts.recorded = None;
    let report = report(&facts, &over(), &seen(&[(1, 1..60)]), None);
    assert!(is_to_be_recorded(&report));
    let mut earlier = EarlierVersion {
        manifest: Digest::of(b"earlier"),
        tag: Some("1.4".to_owned()),
    };
    let said = advice_to_record_again(&report, &earlier);
    let version = format!("an earlier version of the image ({}, tag 1.4)", earlier.manifest);
    assert!(said.contains(&version) && !said.contains("nobody"), "{said}");
    assert!(
        said.contains("`xebec record [--probe …] example.com/app:1 [CMD…]`"),
        "{said}"
    );
    earlier.tag = None;
    assert!(advice_to_record_again(&report, &earlier).contains(&format!("({})", earlier.manifest)));
}
