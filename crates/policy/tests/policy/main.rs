//! Contents that stay, contents that go, how much there may be, and whether anything may be written.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod copies;

use std::collections::BTreeSet;

use std::time::Instant;

use proptest::prelude::*;
use xebec_policy::immutability::{Immutability, ImmutableRule};
use xebec_policy::mode::{Mode, Serving};
use xebec_policy::quota::{Quota, Quotas};
use xebec_policy::retention::{ManifestRecord, Plan, Reason, RetentionRule, TagRecord, plan};

const DAY: u64 = 86_400_000;
const NOW: u64 = 1000 * DAY;

fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

fn tag(name: &str, of: char, days: u64) -> TagRecord {
    TagRecord {
        name: name.to_owned(),
        digest: digest(of),
        updated: NOW - days * DAY,
        pulled: None,
    }
}

fn manifest(name: char, days: u64) -> ManifestRecord {
    ManifestRecord {
        digest: digest(name),
        created: NOW - days * DAY,
        pulled: None,
        subject: None,
        children: Vec::new(),
    }
}

fn rule(text: &str) -> RetentionRule {
    let rule: RetentionRule = toml::from_str(&format!("repositories = '**'\n{text}")).unwrap();
    rule.check().unwrap();
    rule
}

fn planned(tags: &[TagRecord], manifests: &[ManifestRecord], rules: &[RetentionRule]) -> Plan {
    plan("team/app", tags, manifests, rules, &Immutability::default(), NOW)
}

fn going(decisions: &[xebec_policy::retention::Decision]) -> Vec<&str> {
    decisions
        .iter()
        .filter(|decision| !decision.keep)
        .map(|decision| decision.name.as_str())
        .collect()
}

#[test]
fn the_newest_tags_stay_and_those_that_a_rule_keeps() {
    let tags: Vec<TagRecord> = (0..5)
        .map(|nth| tag(&format!("v{nth}"), 'a', 10 * nth))
        .chain([tag("latest", 'a', 99)])
        .collect();
    let manifests = [manifest('a', 99)];
    let newest = rule("tags = ['v*']\nkeep_newest = 2");
    assert_eq!(
        going(&planned(&tags, &manifests, std::slice::from_ref(&newest)).tags),
        ["v2", "v3", "v4"]
    );
    let by_age = rule("tags = ['v*']\nkeep_pushed_within = '25d'");
    assert_eq!(
        going(&planned(&tags, &manifests, std::slice::from_ref(&by_age)).tags),
        ["v3", "v4"]
    );
    assert_eq!(
        going(&planned(&tags, &manifests, &[newest.clone(), by_age]).tags),
        ["v3", "v4"],
        "keeping wins"
    );
    let always = rule("tags = ['v4']\nkeep = true");
    assert_eq!(
        going(&planned(&tags, &manifests, &[newest, always]).tags),
        ["v2", "v3"]
    );
    let other: RetentionRule = toml::from_str("repositories = 'other/**'\nkeep_newest = 1").unwrap();
    assert!(going(&planned(&tags, &manifests, &[other]).tags).is_empty());
}

/// Another registry may have written the times in whole seconds. The next plan is the same, in whichever order tags come.
#[test]
fn of_tags_of_one_time_the_first_names_are_kept() {
    let names = ["v2", "v4", "v1", "v3"];
    for first in 0..names.len() {
        let mut tags = names.map(|name| tag(name, 'a', 5));
        tags.rotate_left(first);
        let plan = planned(&tags, &[manifest('a', 5)], &[rule("keep_newest = 2")]);
        let mut gone = going(&plan.tags);
        gone.sort_unstable();
        assert_eq!(gone, ["v3", "v4"]);
    }
}

#[test]
fn a_pull_by_digest_counts_as_use_of_the_tag() {
    let tags = [tag("v1", 'a', 90), tag("v2", 'b', 90), tag("v3", 'c', 90)];
    let mut manifests = [manifest('a', 90), manifest('b', 90), manifest('c', 90)];
    manifests[0].pulled = Some(NOW - DAY);
    let mut tags = tags;
    tags[1].pulled = Some(NOW - DAY);
    let plan = planned(&tags, &manifests, &[rule("keep_pulled_within = '7d'")]);
    assert_eq!(going(&plan.tags), ["v3"]);
    assert_eq!(plan.tags[0].reason, Reason::PulledLately);
}

#[test]
fn what_a_tag_an_index_or_a_subject_leads_to_stays() {
    // n is an index of indexes; i an index of a and b; s a signature of a; t one of s; u lies alone; y is young.
    let mut manifests: Vec<ManifestRecord> = "niabstuvw".chars().map(|name| manifest(name, 90)).collect();
    manifests.push(manifest('y', 1));
    let at = |name: char| "niabstuvwy".find(name).unwrap();
    manifests[at('n')].children = vec![digest('i')];
    manifests[at('i')].children = vec![digest('a'), digest('b')];
    manifests[at('s')].subject = Some(digest('a'));
    manifests[at('t')].subject = Some(digest('s'));
    // v refers to what will go.
    manifests[at('v')].subject = Some(digest('u'));
    // w refers to what is not here.
    manifests[at('w')].subject = Some(digest('z'));
    let rules = [rule("delete_untagged_after = '7d'")];
    let plan = planned(&[tag("latest", 'n', 90)], &manifests, &rules);
    assert_eq!(
        going(&plan.manifests),
        [digest('u'), digest('v'), digest('w')]
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
    );
    assert!(going(&plan.tags).is_empty());
    assert_eq!(plan.manifests.len(), manifests.len());

    let without = planned(&[], &manifests, &rules);
    let order: Vec<&str> = going(&without.manifests);
    let place = |name: char| order.iter().position(|gone| **gone == digest(name)).unwrap();
    assert!(
        place('n') < place('i') && place('i') < place('a') && place('i') < place('b'),
        "indexes go first"
    );
    assert!(!order.contains(&digest('y').as_str()));
    assert!(
        going(&planned(&[], &manifests, &[rule("keep_newest = 1")]).manifests).is_empty(),
        "no rule lets them go"
    );
}

#[test]
fn tags_that_belong_to_a_manifest_go_with_it() {
    let signature = format!("sha256-{}.sig", "a".repeat(64));
    let fallback = format!("sha256-{}", "b".repeat(64));
    let orphan = format!("sha256-{}.sig", "f".repeat(64));
    let tags = [
        tag("v1", 'a', 1),
        tag("v0", 'b', 90),
        tag(&signature, 's', 90),
        tag(&fallback, 't', 1),
        tag(&orphan, 'u', 90),
    ];
    let manifests: Vec<ManifestRecord> = "abstu".chars().map(|name| manifest(name, 90)).collect();
    let rules = [rule("keep_newest = 1\ndelete_untagged_after = '1d'")];
    let plan = planned(&tags, &manifests, &rules);
    assert_eq!(going(&plan.tags), ["v0", &fallback, &orphan]);
    assert_eq!(
        going(&plan.manifests),
        [digest('b'), digest('t'), digest('u')]
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
    );
    assert_eq!(plan.tags[2].reason, Reason::BelongsToKept);
}

#[test]
fn immutable_tags_stay_whatever_retention_says() {
    let rules = vec![immutable("team/**", &["v*"], &["v*-rc*"])];
    let immutable = Immutability::new(rules);
    let tags = [tag("v1", 'a', 90), tag("v2-rc1", 'a', 90), tag("x", 'a', 1)];
    let plan = plan(
        "team/app",
        &tags,
        &[manifest('a', 90)],
        &[rule("keep_newest = 1")],
        &immutable,
        NOW,
    );
    assert_eq!(going(&plan.tags), ["v2-rc1"]);
    assert_eq!(plan.tags[0].reason, Reason::Immutable);

    assert_eq!(
        immutable.check_push("team/app", "v1", None, "sha256:x"),
        Ok(()),
        "a new tag is no change"
    );
    assert_eq!(
        immutable.check_push("team/app", "v1", Some("sha256:x"), "sha256:x"),
        Ok(()),
        "nor is the same again"
    );
    let error = immutable
        .check_push("team/app", "v1", Some("sha256:x"), "sha256:y")
        .unwrap_err()
        .to_string();
    assert!(error.contains("v1") && error.contains("team/**"), "{error}");
    assert!(immutable.check_removal("team/app", "v1").is_err());
    assert_eq!(immutable.check_removal("team/app", "v1-rc2"), Ok(()));
    assert_eq!(immutable.check_removal("other/app", "v1"), Ok(()));
}

fn immutable(repositories: &str, tags: &[&str], except: &[&str]) -> ImmutableRule {
    toml::from_str(&format!(
        "repositories = '{repositories}'\ntags = {tags:?}\nexcept = {except:?}"
    ))
    .unwrap()
}

#[test]
fn rules_that_do_nothing_or_too_much_are_mistakes() {
    for (text, expected) in [
        ("", "says nothing"),
        ("tags = ['v*']", "says nothing"),
        ("keep_newest = 0", "all its tags would go"),
    ] {
        let rule: RetentionRule = toml::from_str(&format!("repositories = '**'\n{text}")).unwrap();
        let error = rule.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let line = |text: &str| toml::from_str::<RetentionRule>(text).unwrap_err().to_string();
    assert!(line("repositories = 'a'\ntags = ['-x']").contains("line 2"));
    assert!(line("repositories = 'a'\nkeep_pushed_within = 'long'").contains("line 2"));
}

fn any_repository() -> impl Strategy<Value = (Vec<TagRecord>, Vec<ManifestRecord>)> {
    let letters = prop::sample::select(vec!['a', 'b', 'c', 'd', 'e', 'f']);
    let one_tag = (
        "(v[0-9]|latest|x)",
        letters.clone(),
        0_u64..100,
        prop::option::of(0_u64..100),
    );
    let tags = prop::collection::vec(one_tag, 0..8).prop_map(|tags| {
        let mut names = BTreeSet::new();
        let tags = tags.into_iter().filter(|(name, ..)| names.insert(name.clone()));
        let made = tags.map(|(name, of, days, pulled)| TagRecord {
            pulled: pulled.map(|days| NOW - days * DAY),
            ..tag(&name, of, days)
        });
        made.collect::<Vec<_>>()
    });
    // Digests lead to later letters only: there are no circles of digests.
    let links = prop::collection::vec(
        (
            0_u64..100,
            prop::collection::vec(0_usize..6, 0..3),
            prop::option::of(0_usize..6),
        ),
        6,
    );
    let manifests = links.prop_map(|links| {
        let letters = ['a', 'b', 'c', 'd', 'e', 'f'];
        let made = links
            .into_iter()
            .enumerate()
            .map(|(place, (days, children, subject))| ManifestRecord {
                children: children
                    .into_iter()
                    .filter(|child| *child > place)
                    .map(|child| digest(letters[child]))
                    .collect(),
                subject: subject
                    .filter(|subject| *subject > place)
                    .map(|subject| digest(letters[subject])),
                ..manifest(letters[place], days)
            });
        made.collect::<Vec<_>>()
    });
    (tags, manifests)
}

proptest! {
    #[test]
    fn nothing_that_stays_loses_what_it_leads_to((tags, manifests) in any_repository(), count in 1_usize..4, days in 1_u64..100) {
        let rules = [rule(&format!("tags = ['v*']\nkeep_newest = {count}\ndelete_untagged_after = '{days}d'"))];
        let plan = planned(&tags, &manifests, &rules);
        let stays: BTreeSet<&str> = plan.manifests.iter().filter(|decision| decision.keep).map(|decision| decision.name.as_str()).collect();
        prop_assert_eq!(plan.manifests.len(), manifests.len());
        prop_assert_eq!(plan.tags.len(), tags.len());
        for tag in plan.tags.iter().filter(|tag| tag.keep) {
            prop_assert!(stays.contains(tag.digest.as_str()));
        }
        for manifest in &manifests {
            if stays.contains(manifest.digest.as_str()) {
                prop_assert!(manifest.children.iter().all(|child| stays.contains(child.as_str())));
            }
            if manifest.subject.as_ref().is_some_and(|subject| stays.contains(subject.as_str())) {
                prop_assert!(stays.contains(manifest.digest.as_str()));
            }
            if NOW - manifest.created < days * DAY {
                prop_assert!(stays.contains(manifest.digest.as_str()));
            }
        }
    }

    #[test]
    fn more_keeping_keeps_more((tags, manifests) in any_repository(), count in 1_usize..4, days in 1_u64..50) {
        let kept = |count: usize, days: u64| {
            let plan = planned(&tags, &manifests, &[rule(&format!("keep_newest = {count}\ndelete_untagged_after = '{days}d'"))]);
            let all = plan.tags.into_iter().chain(plan.manifests).filter(|decision| decision.keep);
            all.map(|decision| decision.name).collect::<BTreeSet<_>>()
        };
        prop_assert!(kept(count, days).is_subset(&kept(count + 1, days)));
        prop_assert!(kept(count, days).is_subset(&kept(count, days + 10)));
    }

    #[test]
    fn a_second_plan_finds_nothing_more((tags, manifests) in any_repository(), count in 1_usize..4) {
        let rules = [rule(&format!("keep_newest = {count}\ndelete_untagged_after = '3d'"))];
        let first = planned(&tags, &manifests, &rules);
        let stays = |name: &str, decisions: &[xebec_policy::retention::Decision]| {
            decisions.iter().any(|decision| decision.keep && decision.name == name)
        };
        let tags: Vec<_> = tags.into_iter().filter(|tag| stays(&tag.name, &first.tags)).collect();
        let manifests: Vec<_> = manifests.into_iter().filter(|manifest| stays(&manifest.digest, &first.manifests)).collect();
        let second = planned(&tags, &manifests, &rules);
        prop_assert!(going(&second.tags).is_empty() && going(&second.manifests).is_empty());
    }
}

fn quota(prefix: &str, limit: u64) -> Quota {
    Quota {
        prefix: prefix.to_owned(),
        limit,
    }
}

/// Adds up what is stored.
fn add_up(quotas: &Quotas, repository: &str, used: impl Fn(&str) -> u64) {
    for due in quotas.due(repository, Some(Instant::now())) {
        quotas.added_up(&due, used(&due.prefix));
    }
}

#[test]
fn a_push_is_refused_before_it_begins_and_what_is_on_its_way_counts() {
    let quotas = Quotas::new(vec![quota("team", 100), quota("", 150)]);
    let used = |prefix: &str| if prefix.is_empty() { 60 } else { 50 };
    add_up(&quotas, "team/app", used);
    let first = quotas.admit("team/app", 30).unwrap();
    let error = quotas.admit("team/other", 30).unwrap_err();
    assert_eq!(
        (error.prefix.as_str(), error.limit, error.used, error.wanted),
        ("team", 100, 80, 30)
    );
    // Another prefix has room of its own, up to that of all.
    let other = quotas.admit("other", 60).unwrap();
    assert!(quotas.admit("other", 1).is_err());
    drop(other);
    drop(first);
    // Bytes that have come count until they are added up: the push may have come to nothing.
    assert!(quotas.admit("team/app", 50).is_err());
    add_up(&quotas, "team/app", used);
    let mut growing = quotas.admit("team/app", 0).unwrap();
    growing.grow(40).unwrap();
    growing.grow(10).unwrap();
    assert!(growing.grow(1).is_err() && quotas.is_close("team/app"));
    assert!(quotas.admit("team/app", 1).is_err());
    drop(growing);
    add_up(&quotas, "team/app", used);
    assert!(quotas.admit("team/app", 50).is_ok() && !quotas.is_close("teams"));
    // Full is full, and still nothing may be added.
    add_up(&quotas, "team/app", |_| 1000);
    assert!(quotas.admit("team/app", 0).is_ok());
    assert!(quotas.cover("team") && quotas.admit("team/app", 1).is_err());
}

#[test]
fn what_comes_while_it_is_added_up_counts() {
    let quotas = Quotas::new(vec![quota("", 100)]);
    let [due] = quotas.due("a", None).try_into().unwrap();
    // Recorded too late for the sum.
    drop(quotas.admit("a", 60).unwrap());
    quotas.added_up(&due, 0);
    assert!(quotas.due("a", None).is_empty(), "a sum is good for a while");
    assert_eq!(quotas.admit("a", 60).unwrap_err().used, 60);
    assert!(quotas.admit("a", 40).is_ok());
    assert_eq!(quotas.sums(), 1);
    // Before something is refused it is added up again, though not at once.
    let asked = Instant::now();
    let [due] = quotas.due("a", Some(asked)).try_into().unwrap();
    quotas.added_up(&due, 60);
    assert!(quotas.due("a", Some(asked)).is_empty());
    assert_eq!(quotas.sums(), 2);
}

proptest! {
    #[test]
    fn pushes_never_exceed_the_limit_whenever_it_is_added_up(
        steps in prop::collection::vec((0_u64..60, any::<bool>(), any::<bool>()), 1..30),
        before in 0_u64..100,
    ) {
        let quotas = Quotas::new(vec![quota("", 100)]);
        let mut stored = before;
        add_up(&quotas, "a", |_| stored);
        let mut held = Vec::new();
        for (size, is_recorded, adds_up) in steps {
            if let Ok(room) = quotas.admit("a", size) {
                held.push((size, room));
            }
            if is_recorded && let Some((size, room)) = held.pop() {
                stored += size;
                drop(room);
            }
            if adds_up {
                add_up(&quotas, "a", |_| stored);
            }
            let coming: u64 = held.iter().map(|(size, _)| size).sum();
            prop_assert!(stored + coming <= 100);
        }
        drop(held);
        add_up(&quotas, "a", |_| stored);
        prop_assert!(quotas.admit("a", 100 - stored).is_ok());
    }

    #[test]
    fn any_mode_is_read_or_refused(text in "\\PC{0,100}") {
        let _ = Mode::parse(&text);
    }
}

#[test]
fn the_mode_says_what_is_refused() {
    let read_only = Mode::parse("read-only: the disk is being replaced\nmore").unwrap();
    assert_eq!(read_only.serving, Serving::ReadOnly);
    assert_eq!(read_only.refusal(false), None);
    let refusal = read_only.refusal(true).unwrap();
    assert_eq!(refusal.retry_after, None);
    assert!(
        refusal.detail.ends_with(": the disk is being replaced"),
        "{}",
        refusal.detail
    );
    let maintenance = Mode::parse("maintenance").unwrap().refusal(false).unwrap();
    assert_eq!(maintenance.retry_after, Some(30));
    assert_eq!(Mode::parse("normal").unwrap().refusal(true), None);
    assert_eq!(Mode::default().refusal(true), None);
    for wrong in ["", "readonly", "READ-ONLY", "off"] {
        assert!(Mode::parse(wrong).is_err(), "{wrong}");
    }
}
