use xebec_format::digest::Digest;
use xebec_format::runtime_image::{RecordedLayer, ServiceKey};

use super::*;

const NOW: u64 = 1_000_000;

fn key() -> ServiceKey {
    ServiceKey {
        argv: vec!["service".to_owned()],
        env: Default::default(),
    }
}

/// Pages with how often each was seen.
fn recorded(when: u64, runs: u8, touched: &[(u64, u8)]) -> Service {
    let mut seen = Vec::new();
    for (first, times) in touched.iter().copied() {
        let (layer, pages) = (0, 1);
        let run = PageRun { layer, first, pages };
        SeenRun { run, seen: times }.push_onto(&mut seen);
    }
    Service {
        key: key(),
        probe: format!("probe of {when}"),
        recorded: when,
        runs,
        recorder: "xebec 0.0.1".to_owned(),
        touched: seen,
    }
}

fn profile(started: u64, missed: &[u64], touched: Option<&[u64]>) -> Profile {
    let runs = |pages: &[u64]| Profile::runs(pages.iter().map(|page| (0, *page)));
    Profile {
        image: Digest::of(b"image"),
        layers: Vec::new(),
        service: key(),
        started,
        missed: runs(missed),
        touched: touched.map(runs),
    }
}

fn seen(folded: &Folded) -> Vec<(u64, u8)> {
    let touched = folded.service.touched.iter();
    touched
        .flat_map(|seen| pages(&seen.run).map(|(_, page)| (page, seen.seen)))
        .collect()
}

#[test]
fn a_recording_is_dated_after_those_that_it_follows() {
    let of = |dates: &[u64]| -> Vec<Service> { dates.iter().map(|when| recorded(*when, 1, &[])).collect() };
    assert_eq!(after(&[], NOW), NOW);
    assert_eq!(after(&of(&[NOW - 7, NOW - 1]), NOW), NOW);
    assert_eq!(after(&of(&[NOW, NOW - 1]), NOW), NOW + 1, "within one second");
    assert_eq!(
        after(&of(&[NOW + CLOCKS]), NOW),
        NOW + CLOCKS + 1,
        "by a clock that is ahead"
    );
    assert_eq!(after(&of(&[NOW + CLOCKS + 1, u64::MAX]), NOW), NOW, "by none");
}

#[test]
fn recordings_unite() {
    let newest = recorded(300, 2, &[(1, 2), (5, 1), (6, 2)]);
    let older = recorded(200, 1, &[(5, 1), (9, 1), (6, 1)]);
    let folded = fold(&[newest, older], &[], Limit::default(), NOW).unwrap();
    assert_eq!(seen(&folded), [(1, 2), (5, 2), (9, 1), (6, 3)]);
    let service = &folded.service;
    assert_eq!(
        (service.runs, service.recorded, &service.probe[..]),
        (3, NOW, "probe of 300")
    );
    assert!(is_merged(service));
    assert_eq!((folded.added, folded.dropped, folded.left_out), (0, 0, 0));
    assert_eq!(fold(&[], &[], Limit::default(), NOW), None);
}

#[test]
fn what_was_folded_stands_for_what_is_older() {
    let merged = Service {
        recorder: format!("xebec 9{MERGED}"),
        ..recorded(200, 1, &[(1, 1)])
    };
    let all = vec![
        recorded(100, 1, &[(1, 1)]),
        recorded(300, 1, &[(1, 1)]),
        merged,
        recorded(200, 1, &[(1, 1)]),
    ];
    let times: Vec<u64> = standing(all.clone(), |service| service)
        .iter()
        .map(|s| s.recorded)
        .collect();
    assert_eq!(times, [300, 200]);
    let times: Vec<u64> = standing(all[..2].to_vec(), |service| service)
        .iter()
        .map(|s| s.recorded)
        .collect();
    assert_eq!(times, [300, 100]);
}

#[test]
fn what_is_predicted_is_a_hint_until_a_start_has_said_something() {
    let predicted = Service {
        recorder: "xebec-registry 1 predict".to_owned(),
        ..recorded(300, 1, &[(1, 1), (2, 1), (3, 1)])
    };
    let both = vec![predicted.clone(), recorded(100, 2, &[(9, 2)])];
    let standing_times: Vec<u64> = standing(both, |service| service)
        .iter()
        .map(|s| s.recorded)
        .collect();
    assert_eq!(standing_times, [100], "it is left out where there is a recording");
    let alone = [predicted];
    let folded = |profiles: &[Profile]| fold(&alone, profiles, Limit::default(), NOW).unwrap();
    let hint = folded(&[]);
    assert!(hint.service.is_predicted(), "nothing has confirmed it");
    assert_eq!(hint.service.recorded, 301, "it is as old, and still the newest");
    // A start that does not say all that it touched confirms nothing; what it asked for is one more hint.
    let asked = folded(&[profile(400, &[7], None)]);
    assert!(asked.service.is_predicted());
    assert_eq!((asked.service.runs, asked.added), (1, 1));
    assert_eq!(seen(&asked), [(1, 1), (2, 1), (3, 1), (7, 1)]);
    let starts: Vec<Profile> = (400..404)
        .map(|when| profile(when, &[7], Some(&[1, 2])))
        .collect();
    let confirmed = folded(&starts);
    assert!(is_merged(&confirmed.service));
    // Four starts ran it; the prediction is no run.
    assert_eq!(confirmed.service.runs, 4);
    assert_eq!(seen(&confirmed), [(1, 4), (2, 4), (7, 4)]);
    assert_eq!((confirmed.added, confirmed.dropped), (1, 1));
}

#[test]
fn a_poor_prediction_does_not_say_how_much_is_learned() {
    let predicted = |when, touched: &[(u64, u8)]| Service {
        recorder: "xebec-registry 1 predict".to_owned(),
        ..recorded(when, 1, touched)
    };
    let alone = [predicted(300, &[(3, 1), (1, 1), (2, 1)])];
    let missed: Vec<u64> = (100..150).collect();
    // Profiles do not say in which order a start read pages of its recording; the prediction does.
    let starts = [profile(400, &missed, Some(&[1, 3]))];
    let folded = fold(&alone, &starts, Limit::default(), NOW).unwrap();
    let mut expected = vec![(3, 1), (1, 1)];
    expected.extend(missed.iter().map(|page| (*page, 1)));
    assert_eq!(seen(&folded), expected);
    assert_eq!((folded.added, folded.left_out, folded.dropped), (50, 0, 1));
    assert!(is_merged(&folded.service));
}

#[test]
fn of_predictions_the_newest_stands_for_the_others() {
    let predicted = |when| Service {
        recorder: "xebec-registry 1 predict".to_owned(),
        ..recorded(when, 1, &[(1, 1)])
    };
    let all = vec![predicted(100), predicted(101), predicted(99)];
    let times: Vec<u64> = standing(all, |service| service)
        .iter()
        .map(|s| s.recorded)
        .collect();
    assert_eq!(times, [101]);
}

#[test]
fn it_is_newer_than_what_it_stands_for() {
    let at = |when: u64| fold(&[recorded(when, 1, &[(1, 1)])], &[], Limit::default(), NOW);
    let when = |when: u64| at(when).unwrap().service.recorded;
    assert_eq!((when(10), when(NOW), when(NOW + 60)), (NOW, NOW + 1, NOW + 61));
    assert_eq!(when(u64::MAX), NOW, "no clock goes that wrong");
}

#[test]
fn profiles_add_what_most_starts_asked_for() {
    let pages: Vec<(u64, u8)> = (0..10).map(|page| (page, 1)).collect();
    let base = [recorded(100, 1, &pages)];
    let profiles = [
        profile(400, &[70, 50, 3], None),
        profile(300, &[60, 50], None),
        profile(200, &[60, 80, 50], None),
    ];
    let folded = fold(&base, &profiles, Limit::default(), NOW).unwrap();
    assert_eq!((folded.added, folded.left_out, folded.dropped), (2, 2, 0));
    let mut expected = pages.clone();
    expected.extend([(60, 1), (50, 1)]);
    assert_eq!(seen(&folded), expected);
    assert_eq!(folded.service.runs, 1, "nobody knows what these starts touched");
    let all = fold(&base, &profiles, Limit::Pages(100), NOW).unwrap();
    assert_eq!((all.added, all.left_out), (4, 0));
    let none = fold(&base, &profiles, Limit::Percent(0), NOW).unwrap();
    assert_eq!((seen(&none), none.left_out), (pages, 4));
}

#[test]
fn pages_that_no_recent_start_touched_are_dropped() {
    let base = recorded(100, 1, &[(1, 1), (2, 1), (3, 1), (4, 1)]);
    let start = |started, touched: &[u64]| profile(started, &[], Some(touched));
    let alone = std::slice::from_ref(&base);
    let dropped = |recordings: &[Service], profiles: &[Profile]| {
        let folded = fold(recordings, profiles, Limit::Pages(0), NOW).unwrap();
        let left: Vec<u64> = seen(&folded).into_iter().map(|(page, _)| page).collect();
        assert_eq!(folded.dropped as usize, 4 - left.len());
        left
    };
    let starts = [start(500, &[1, 3]), start(400, &[1]), start(300, &[1, 3, 2])];
    assert_eq!(dropped(alone, &starts), [1, 2, 3]);
    assert_eq!(dropped(alone, &starts[..2]), [1, 2, 3, 4], "too few");
    // Those that do not know, that saw nothing, or that were before the recording do not count.
    for other in [
        profile(300, &[], None),
        profile(300, &[70], None),
        start(300, &[]),
        start(99, &[1]),
    ] {
        let profiles = [starts[0].clone(), starts[1].clone(), other];
        assert_eq!(dropped(alone, &profiles), [1, 2, 3, 4]);
    }
    // Read lazily, since it was not there: needed.
    let lazily = [start(500, &[1]), start(400, &[1]), profile(300, &[4], Some(&[1]))];
    assert_eq!(dropped(alone, &lazily), [1, 4]);
    // One that had no recording lists all its pages as missed.
    let all = [
        starts[0].clone(),
        starts[1].clone(),
        profile(300, &[2, 1], Some(&[])),
    ];
    assert_eq!(dropped(alone, &all), [1, 2, 3]);
    // Recorded again since.
    let again = recorded(450, 1, &[(2, 1), (4, 1)]);
    assert_eq!(dropped(&[again, base.clone()], &starts), [1, 2, 3, 4]);
    // A service that reads nothing is none.
    let elsewhere = [start(500, &[70]), start(400, &[71]), start(300, &[72])];
    assert_eq!(dropped(alone, &elsewhere), [1, 2, 3, 4]);
}

#[test]
fn what_was_never_recorded_is_learned() {
    let profiles = [
        profile(400, &[5, 1, 2], Some(&[])),
        profile(300, &[9, 1, 8], None),
        profile(200, &[1, 7], Some(&[3])),
        profile(100, &[], Some(&[])),
    ];
    let folded = fold(&[], &profiles, Limit::Pages(1), NOW).unwrap();
    // The first page that only the start has of which it is not known what it touched.
    assert_eq!(seen(&folded), [(3, 1), (5, 1), (1, 2), (7, 1), (2, 1), (9, 1)]);
    assert_eq!((folded.service.runs, folded.service.key), (2, key()));
    assert_eq!((folded.added, folded.left_out), (6, 1));
    assert_eq!(fold(&[], &profiles[1..2], Limit::default(), NOW), None);
    assert_eq!(fold(&[], &profiles[3..], Limit::default(), NOW), None);
}

#[test]
fn counts_of_runs_go_on() {
    let base = recorded(100, 2, &[(1, 2), (2, 1)]);
    let profiles = [
        profile(300, &[9], Some(&[1, 2])),
        profile(200, &[9], Some(&[1])),
        profile(200, &[9], None),
    ];
    let folded = fold(&[base], &profiles, Limit::Pages(9), NOW).unwrap();
    assert_eq!(seen(&folded), [(1, 4), (2, 2), (9, 3)]);
    assert_eq!(folded.service.runs, 4);
    // More than a byte can tell.
    let many: Vec<Service> = (0..3)
        .map(|when| recorded(when, 200, &[(1, 200), (2, 1), (3, 199)]))
        .collect();
    let folded = fold(&many, &[], Limit::default(), NOW).unwrap();
    assert_eq!(
        (seen(&folded), folded.service.runs),
        (vec![(1, 255), (2, 1), (3, 253)], 255)
    );
}

#[test]
fn layers_have_one_number() {
    let layer = |name: &[u8], data_size| RecordedLayer {
        layer: Digest::of(name),
        index: Digest::of(b"index"),
        data_size,
    };
    let ours = [layer(b"lower", 4096), layer(b"upper", 8192)];
    let numbers = Numbers::new(&[ours[1], ours[0]], &ours).unwrap();
    let service = numbers.service(&recorded(1, 1, &[(7, 1)]));
    assert_eq!(service.touched[0].run.layer, 1);
    let profile = numbers.profile(&profile(1, &[3], Some(&[4])));
    assert_eq!(
        (profile.missed[0].layer, profile.touched.unwrap()[0].layer),
        (1, 1)
    );
    assert!(Numbers::new(&[layer(b"upper", 4096)], &ours).is_none());
    assert!(Numbers::new(&[ours[0], layer(b"other", 4096)], &ours).is_none());
}
