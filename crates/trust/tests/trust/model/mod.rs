//! The promise of the trust module, against a model. Artifacts, tags, signatures, bindings, runs, proofs and policies come
//! in whatever order. An image named by digest is never read through an index that only a registry vouches for, also when
//! that index is in the cache already. And every judgement is the one that a few lines of plain rules give.
//!
//! The world: two repositories, three images that share layers, for each layer a true index and two lies, and
//! three keys. The attacker may push any artifact, move any tag to an image index that binds a lie, sign with
//! any key that the policy does not list for the place, and publish an image whose own table of contents
//! lies.

mod names;
mod rules;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use xebec_trust::{Naming, Record, Root};

use self::names::{IMAGES, Target, VARIANTS, image_of};
use self::rules::Model;
use self::world::World;

#[derive(Clone, Debug)]
enum Event {
    Attach {
        repository: u8,
        image: u8,
        variant: u8,
    },
    Sign {
        repository: u8,
        image: u8,
        variant: u8,
        key: u8,
        made_for: u8,
    },
    MoveTag {
        repository: u8,
        target: Target,
    },
    RunTag {
        repository: u8,
    },
    RunDigest {
        repository: u8,
        target: Target,
    },
    Prove {
        layer: u8,
        variant: u8,
    },
    Configure {
        policy: u8,
    },
    LoseRecord {
        layer: u8,
        variant: u8,
    },
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        (0u8..3).prop_map(Target::Manifest),
        (0u8..3, 0..VARIANTS).prop_map(|(image, variant)| Target::ImageIndex(image, variant)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0u8..2, 0u8..3, 0..VARIANTS)
            .prop_map(|(repository, image, variant)| Event::Attach { repository, image, variant }),
        2 => (0u8..2, 0u8..3, 0..VARIANTS, 1u8..4, 0u8..2).prop_map(
            |(repository, image, variant, key, made_for)| Event::Sign { repository, image, variant, key, made_for }
        ),
        2 => (0u8..2, target()).prop_map(|(repository, target)| Event::MoveTag { repository, target }),
        4 => (0u8..2).prop_map(|repository| Event::RunTag { repository }),
        4 => (0u8..2, target()).prop_map(|(repository, target)| Event::RunDigest { repository, target }),
        2 => (0u8..3, 0..VARIANTS).prop_map(|(layer, variant)| Event::Prove { layer, variant }),
        1 => (0u8..4).prop_map(|policy| Event::Configure { policy }),
        1 => (0u8..3, 0..VARIANTS).prop_map(|(layer, variant)| Event::LoseRecord { layer, variant }),
    ]
}

/// Counts of what was seen, so that the test cannot pass by never meeting a case.
type Seen = BTreeMap<String, usize>;

fn play(events: &[Event], seen: &mut Seen) -> Result<(), TestCaseError> {
    let (mut world, mut model) = (World::default(), Model::default());
    for event in events {
        match *event {
            Event::Attach {
                repository,
                image,
                variant,
            } => {
                world.attached.insert((repository, image, variant));
                model.attached.insert((repository, image, variant));
            }
            Event::Sign {
                repository,
                image,
                variant,
                key,
                made_for,
            } => {
                world.sign(repository, image, variant, key, made_for);
                model.signatures.push((repository, image, variant, key, made_for));
            }
            Event::MoveTag { repository, target } => {
                world.tags.insert(repository, target);
            }
            Event::RunTag { repository } => {
                let Some(target) = world.tags.get(&repository).copied() else {
                    continue;
                };
                run(&mut world, &mut model, repository, target, Naming::Tag, seen)?;
            }
            Event::RunDigest { repository, target } => {
                run(&mut world, &mut model, repository, target, Naming::Digest, seen)?;
            }
            Event::Prove { layer, variant } => prove(&mut world, &mut model, layer, variant),
            Event::Configure { policy } => {
                world.policy = policy;
                model.policy = policy;
            }
            Event::LoseRecord { layer, variant } => lose(&mut world, &mut model, layer, variant),
        }
    }
    Ok(())
}

fn run(
    world: &mut World,
    model: &mut Model,
    place: u8,
    target: Target,
    naming: Naming,
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let expected = model.run(place, target, naming);
    let used = world.run(place, target, naming);
    prop_assert_eq!(&used, &expected, "{:?} in {} by {}", target, place, naming);
    for (layer, used) in IMAGES[usize::from(image_of(target))].iter().zip(used) {
        let Some((variant, root)) = used else {
            *seen.entry(format!("{naming}: refused")).or_default() += 1;
            continue;
        };
        prop_assert!(naming == Naming::Tag || root != Root::Registry);
        prop_assert!(!model.disproved.contains(&(*layer, variant)));
        let excuse = model.excuse(place, target, naming, *layer, variant);
        prop_assert!(
            excuse.is_some(),
            "{:?} in {} by {} reads lie {}",
            target,
            place,
            naming,
            variant
        );
        let kind = if variant == 0 { "truth" } else { "lie" };
        *seen.entry(format!("{naming}: {kind} by {root}")).or_default() += 1;
    }
    Ok(())
}

/// The host reads a layer whose index is cached, and sees the truth.
fn prove(world: &mut World, model: &mut Model, layer: u8, variant: u8) {
    if !model.cached.contains(&(layer, variant)) {
        return;
    }
    match variant {
        0 => {
            world.learn(layer, variant, Record::set_proven);
            model.proven.insert((layer, variant));
        }
        _ => {
            world.learn(layer, variant, |record| record.set_disproved("other contents"));
            model.disproved.insert((layer, variant));
        }
    }
}

/// The disk damages a record.
fn lose(world: &mut World, model: &mut Model, layer: u8, variant: u8) {
    if let Some(bytes) = world.cache.get_mut(&(layer, variant)) {
        bytes.truncate(bytes.len() / 2);
    }
    let this = (layer, variant);
    model.proven.remove(&this);
    model.disproved.remove(&this);
    model.bound.retain(|(l, v, _)| (*l, *v) != this);
    model.listed.retain(|(l, v, ..)| (*l, *v) != this);
    model.signed.retain(|(l, v, ..)| (*l, *v) != this);
}

/// Plays random worlds.
fn explore(mut runner: TestRunner) -> Seen {
    let seen = RefCell::new(Seen::new());
    runner
        .run(&prop::collection::vec(event(), 1..60), |events| {
            play(&events, &mut seen.borrow_mut())
        })
        .unwrap();
    seen.into_inner()
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        ..Config::with_source_file(file!())
    }
}

#[test]
fn no_lie_reaches_a_digest_over_the_cache() {
    explore(TestRunner::new(config(512)));
}

/// The same worlds each time, so that whether each case occurs does not depend on luck.
#[test]
fn every_case_occurs() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
    let seen = explore(TestRunner::new_with_rng(config(512), rng));
    println!("{seen:#?}");
    for root in ["proven", "signed", "bound"] {
        for naming in ["tag", "digest"] {
            assert!(
                seen.contains_key(&format!("{naming}: truth by {root}")),
                "{naming} {root} never occurred"
            );
        }
    }
    for case in [
        "tag: truth by registry",
        "tag: lie by registry",
        "tag: refused",
        "digest: refused",
    ] {
        assert!(seen.contains_key(case), "{case} never occurred");
    }
}

/// The attack that this module exists for, step by step.
#[test]
fn a_lie_under_a_tag_does_not_reach_the_digest() {
    let mut seen = Seen::new();
    let image = Target::Manifest(0);
    let events = [
        Event::MoveTag {
            repository: 0,
            target: image,
        },
        Event::Attach {
            repository: 0,
            image: 0,
            variant: 1,
        },
        Event::RunTag { repository: 0 },
        Event::RunDigest {
            repository: 0,
            target: image,
        },
        // The same image in another repository, where nobody attached anything.
        Event::MoveTag {
            repository: 1,
            target: image,
        },
        Event::RunTag { repository: 1 },
        Event::RunDigest {
            repository: 1,
            target: image,
        },
        // An image index under a tag that binds the lie.
        Event::MoveTag {
            repository: 0,
            target: Target::ImageIndex(0, 2),
        },
        Event::RunTag { repository: 0 },
        Event::RunDigest {
            repository: 0,
            target: image,
        },
        // Where truth is signed, the lie beside it is passed over, also by tag, and by digest there is
        // something to read.
        Event::Configure { policy: 3 },
        Event::Attach {
            repository: 1,
            image: 0,
            variant: 1,
        },
        Event::Attach {
            repository: 1,
            image: 0,
            variant: 0,
        },
        Event::Sign {
            repository: 1,
            image: 0,
            variant: 0,
            key: 2,
            made_for: 1,
        },
        Event::RunTag { repository: 1 },
        Event::RunDigest {
            repository: 1,
            target: image,
        },
        Event::Configure { policy: 0 },
        // Once the host has looked, no name leads to the lie.
        Event::Prove { layer: 0, variant: 1 },
        Event::Prove { layer: 1, variant: 1 },
        Event::MoveTag {
            repository: 0,
            target: image,
        },
        Event::RunTag { repository: 0 },
    ];
    play(&events, &mut seen).unwrap();
    let want = [
        ("digest: refused", 6),
        ("tag: lie by registry", 2),
        ("tag: lie by bound", 2),
        ("tag: refused", 4),
        ("tag: truth by signed", 2),
        ("digest: truth by signed", 2),
    ];
    let want: Seen = want
        .iter()
        .map(|(case, count)| ((*case).to_owned(), *count))
        .collect();
    assert_eq!(seen, want);
}
