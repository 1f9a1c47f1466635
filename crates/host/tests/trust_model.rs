//! The promise of the trust module, against a model: whatever is pushed, tagged, signed, bound, run, proven
//! and configured in whatever order, an image named by digest is never read through an index that only a
//! registry vouches for, also when that index is in the cache already; and every judgement is the one that a
//! few lines of plain rules give.
//!
//! The world: two repositories, three images that share layers, for each layer a true index and two lies, and
//! three keys. The attacker may push any artifact, move any tag to an image index that binds a lie, sign with
//! any key that the policy does not list for the place, and publish an image whose own table of contents
//! lies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use xebec_format::digest::Digest;
use xebec_host::trust::{
    Binding, BoundArtifact, Listing, Naming, Original, Platform, Policy, PrivateKey, Record, RepositoryName,
    Root, SignatureManifest, SignaturePush, TrustFile, bind, bound_artifact, sign, verify,
};

const REPOSITORIES: [&str; 2] = ["r0.example.com/app", "r1.example.com/app"];
/// Layers of each image. Image 2 is the attacker's: its manifest annotates a lying table of contents of layer
/// 0.
const IMAGES: [&[u8]; 3] = [&[0, 1], &[0, 2], &[0]];
const ATTACKERS_IMAGE: u8 = 2;
/// Variants of an index: 0 is true, the others lie.
const VARIANTS: u8 = 3;

/// What a tag points to, or a digest names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// An image manifest.
    Manifest(u8),
    /// An image index that binds a variant to an image.
    ImageIndex(u8, u8),
}

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

// ---- names in the world ----

fn repository(number: u8) -> RepositoryName {
    RepositoryName::from_docker_reference(REPOSITORIES[usize::from(number)]).unwrap()
}

fn layer(number: u8) -> Digest {
    Digest::of(format!("layer {number}").as_bytes())
}

fn index(layer: u8, variant: u8) -> Digest {
    Digest::of(format!("index {variant} of layer {layer}").as_bytes())
}

fn manifest(image: u8) -> Vec<u8> {
    format!("manifest {image}").into_bytes()
}

fn artifact(image: u8, variant: u8) -> Digest {
    Digest::of(format!("artifact {variant} of image {image}").as_bytes())
}

fn image_index(image: u8, variant: u8) -> Vec<u8> {
    let platform = Platform {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let bytes = manifest(image);
    let original = Original::Manifest {
        media_type: "m",
        bytes: &bytes,
        platform,
    };
    let bound = BoundArtifact {
        manifest: Digest::of(&bytes),
        artifact: artifact(image, variant),
        artifact_size: 1,
    };
    bind(&original, &[bound]).unwrap()
}

/// The documents from a name to the image manifest.
fn path(target: Target) -> Vec<Digest> {
    match target {
        Target::Manifest(image) => vec![Digest::of(&manifest(image))],
        Target::ImageIndex(image, variant) => {
            vec![
                Digest::of(&image_index(image, variant)),
                Digest::of(&manifest(image)),
            ]
        }
    }
}

fn image_of(target: Target) -> u8 {
    match target {
        Target::Manifest(image) | Target::ImageIndex(image, _) => image,
    }
}

// ---- policies, as text for the module and as plain rules for the model ----

struct Rules {
    text: &'static str,
    /// Per repository: does the registry suffice for tags?
    tags: [bool; 2],
    /// Key, whether it is valid in each repository, whether copies count.
    keys: &'static [(u8, [bool; 2], bool)],
}

const POLICIES: [Rules; 4] = [
    Rules {
        text: "",
        tags: [true, true],
        keys: &[],
    },
    Rules {
        text: "registry-root = \"never\"\n[[key]]\nname = \"a\"\nfile = \"1\"\nrepositories = [\"**\"]\n",
        tags: [false, false],
        keys: &[(1, [true, true], false)],
    },
    Rules {
        text: "[[registry]]\nprefix = \"r1.example.com\"\nregistry-root = \"never\"\n\
               [[key]]\nname = \"a\"\nfile = \"1\"\nrepositories = [\"r0.example.com/*\"]\n",
        tags: [true, false],
        keys: &[(1, [true, false], false)],
    },
    Rules {
        text: "[[key]]\nname = \"a\"\nfile = \"1\"\nrepositories = [\"**\"]\nidentity = \"any\"\n\
               [[key]]\nname = \"b\"\nfile = \"2\"\nrepositories = [\"r1.example.com/**\"]\n",
        tags: [true, true],
        keys: &[(1, [true, true], true), (2, [false, true], false)],
    },
];

impl Rules {
    fn policy(&self) -> Policy {
        let file = TrustFile::parse(self.text.as_bytes()).unwrap();
        Policy::build(&file, |name| {
            let key = PrivateKey::from_secret(&[name.parse().unwrap(); 32]).unwrap();
            Ok((name.into(), key.public().unwrap().to_pem().unwrap().into_bytes()))
        })
        .unwrap()
    }

    /// Whether a signature by `key` made for a repository counts in another.
    fn counts(&self, key: u8, made_for: u8, place: u8) -> bool {
        self.keys.iter().any(|(trusted, valid, any)| {
            *trusted == key && valid[usize::from(place)] && (*any || made_for == place)
        })
    }
}

// ---- the host, as it uses the module ----

/// What is at a signature tag: the manifest and the payloads.
type Signed = (Vec<u8>, Vec<Vec<u8>>);

/// Registries and the host's cache.
#[derive(Default)]
struct World {
    attached: BTreeSet<(u8, u8, u8)>,
    /// By repository, image, variant: what is at the signature tag.
    signatures: BTreeMap<(u8, u8, u8), Signed>,
    tags: BTreeMap<u8, Target>,
    policy: u8,
    /// `roots.json` of each cached index, as bytes.
    cache: BTreeMap<(u8, u8), Vec<u8>>,
}

impl World {
    fn record(&self, layer_number: u8, variant: u8) -> Option<Record> {
        let bytes = self.cache.get(&(layer_number, variant))?;
        let (layer, index) = (layer(layer_number), index(layer_number, variant));
        Some(Record::parse(bytes, layer, index).unwrap_or_else(|_| Record::new(layer, index)))
    }

    fn learn(&mut self, layer_number: u8, variant: u8, change: impl FnOnce(&mut Record)) {
        let fresh = || Record::new(layer(layer_number), index(layer_number, variant));
        let mut record = self.record(layer_number, variant).unwrap_or_else(fresh);
        change(&mut record);
        self.cache
            .insert((layer_number, variant), serde_json::to_vec(&record).unwrap());
    }

    fn sign(&mut self, repository_number: u8, image: u8, variant: u8, key: u8, made_for: u8) {
        let (manifest, payloads) = self
            .signatures
            .entry((repository_number, image, variant))
            .or_default();
        let existing = (!manifest.is_empty()).then_some(manifest.as_slice());
        let key = PrivateKey::from_secret(&[key; 32]).unwrap();
        let push: SignaturePush =
            sign(&key, &repository(made_for), artifact(image, variant), existing).unwrap();
        *manifest = push.manifest;
        payloads.push(push.payload);
    }

    /// Runs an image: for each of its layers, the index that is used and what that rests on.
    fn run(&mut self, place: u8, target: Target, naming: Naming) -> Vec<Option<(u8, Root)>> {
        let image = image_of(target);
        let policy = POLICIES[usize::from(self.policy)].policy();
        let layers = IMAGES[usize::from(image)].iter().copied();
        layers
            .map(|layer| self.choose(&policy, place, target, naming, layer))
            .collect()
    }

    /// Of the indexes in the cache and of those that the registry has for the image, the best that is
    /// admitted.
    fn choose(
        &mut self,
        policy: &Policy,
        place: u8,
        target: Target,
        naming: Naming,
        layer: u8,
    ) -> Option<(u8, Root)> {
        let mut variants: Vec<u8> = (0..VARIANTS)
            .filter(|v| self.cache.contains_key(&(layer, *v)))
            .collect();
        variants.extend(self.learn_candidates(policy, place, target, layer));
        let image = repository(place);
        let indexes = variants
            .into_iter()
            .filter_map(|variant| Some((variant, self.record(layer, variant)?.roots(&image, &path(target)))));
        policy.choose(&image, naming, indexes).ok()
    }

    /// Looks at everything that the registry has for the image, and notes the facts.
    fn learn_candidates(&mut self, policy: &Policy, place: u8, target: Target, layer: u8) -> Vec<u8> {
        let image = image_of(target);
        let manifest_digest = Digest::of(&manifest(image));
        let mut candidates = Vec::new();
        if image == ATTACKERS_IMAGE {
            let binding = Binding::TableOfContents {
                manifest: manifest_digest,
            };
            self.learn(layer, 1, |record| record.add_binding(binding));
            candidates.push(1);
        }
        if let Target::ImageIndex(_, variant) = target {
            let (bound, binding) = bound_artifact(&image_index(image, variant), manifest_digest)
                .unwrap()
                .unwrap();
            assert_eq!(bound.artifact, artifact(image, variant));
            self.learn(layer, variant, |record| record.add_binding(binding));
            self.learn_signature(policy, place, image, layer, variant);
            candidates.push(variant);
        }
        for variant in (0..VARIANTS)
            .filter(|v| self.attached.contains(&(place, image, *v)))
            .collect::<Vec<_>>()
        {
            let listing = Listing::new(&repository(place), manifest_digest);
            self.learn(layer, variant, |record| record.add_listing(listing));
            self.learn_signature(policy, place, image, layer, variant);
            candidates.push(variant);
        }
        candidates
    }

    fn learn_signature(&mut self, policy: &Policy, place: u8, image: u8, layer: u8, variant: u8) {
        let Some((manifest, payloads)) = self.signatures.get(&(place, image, variant)) else {
            return;
        };
        let manifest = SignatureManifest::parse(manifest).unwrap();
        let found = verify(
            policy,
            &repository(place),
            artifact(image, variant),
            &manifest,
            payloads,
        );
        if let Ok(signing) = found {
            self.learn(layer, variant, |record| record.add_signing(signing));
        }
    }
}

// ---- the model: plain tuples and plain rules ----

/// What has happened, and what the host has seen of it.
#[derive(Default)]
struct Model {
    attached: BTreeSet<(u8, u8, u8)>,
    /// Repository, image, variant, key, made for; in the order of signing.
    signatures: Vec<(u8, u8, u8, u8, u8)>,
    policy: u8,
    /// Layer, variant of what is cached.
    cached: BTreeSet<(u8, u8)>,
    proven: BTreeSet<(u8, u8)>,
    disproved: BTreeSet<(u8, u8)>,
    /// Layer, variant, the target whose documents bind.
    bound: BTreeSet<(u8, u8, Target)>,
    /// Layer, variant, repository, image.
    listed: BTreeSet<(u8, u8, u8, u8)>,
    /// Layer, variant, key, made for.
    signed: BTreeSet<(u8, u8, u8, u8)>,
}

impl Model {
    fn rules(&self) -> &'static Rules {
        &POLICIES[usize::from(self.policy)]
    }

    fn admits(&self, place: u8, target: Target, naming: Naming, layer: u8, variant: u8) -> Option<Root> {
        let image = image_of(target);
        if !self.cached.contains(&(layer, variant)) || self.disproved.contains(&(layer, variant)) {
            return None;
        }
        let own = Target::Manifest(image);
        if self.bound.contains(&(layer, variant, target)) || self.bound.contains(&(layer, variant, own)) {
            return Some(Root::Bound);
        }
        let of_index = |(l, v, key, made_for): &(u8, u8, u8, u8)| {
            (*l, *v) == (layer, variant) && self.rules().counts(*key, *made_for, place)
        };
        if self.signed.iter().any(of_index) {
            return Some(Root::Signed);
        }
        if self.proven.contains(&(layer, variant)) {
            return Some(Root::Proven);
        }
        let listed = self.listed.contains(&(layer, variant, place, image));
        (listed && naming == Naming::Tag && self.rules().tags[usize::from(place)]).then_some(Root::Registry)
    }

    fn run(&mut self, place: u8, target: Target, naming: Naming) -> Vec<Option<(u8, Root)>> {
        let image = image_of(target);
        let choose = |&layer: &u8| {
            let mut variants: Vec<u8> = (0..VARIANTS)
                .filter(|v| self.cached.contains(&(layer, *v)))
                .collect();
            variants.extend(self.look(place, target, layer));
            let admitted = |root| {
                let admits = |v: &&u8| self.admits(place, target, naming, layer, **v) == Some(root);
                variants.iter().find(admits).map(|v| (*v, root))
            };
            [Root::Bound, Root::Signed, Root::Proven, Root::Registry]
                .into_iter()
                .find_map(admitted)
        };
        IMAGES[usize::from(image)].iter().map(choose).collect()
    }

    fn look(&mut self, place: u8, target: Target, layer: u8) -> Vec<u8> {
        let image = image_of(target);
        let mut seen = Vec::new();
        if image == ATTACKERS_IMAGE {
            self.bound.insert((layer, 1, Target::Manifest(image)));
            seen.push(1);
        }
        if let Target::ImageIndex(_, variant) = target {
            self.bound.insert((layer, variant, target));
            seen.push(variant);
        }
        for variant in 0..VARIANTS {
            if self.attached.contains(&(place, image, variant)) {
                self.listed.insert((layer, variant, place, image));
                seen.push(variant);
            }
        }
        self.cached.extend(seen.iter().map(|variant| (layer, *variant)));
        let toc_only = image == ATTACKERS_IMAGE;
        for variant in seen.iter().skip(usize::from(toc_only)) {
            // One counted signature is enough, the first.
            let counted = self.signatures.iter().find(|(r, i, v, key, made_for)| {
                (*r, *i, v) == (place, image, variant) && self.rules().counts(*key, *made_for, place)
            });
            if let Some((.., key, made_for)) = counted {
                self.signed.insert((layer, *variant, *key, *made_for));
            }
        }
        seen
    }

    /// The promise itself, from what happened alone: who could have made this host use a lie?
    fn excuse(
        &self,
        place: u8,
        target: Target,
        naming: Naming,
        layer: u8,
        variant: u8,
    ) -> Option<&'static str> {
        let image = image_of(target);
        let vouched = |(_, i, v, key, made_for): &(u8, u8, u8, u8, u8)| {
            IMAGES[usize::from(*i)].contains(&layer)
                && *v == variant
                && self.rules().counts(*key, *made_for, place)
        };
        if variant == 0 {
            Some("it is true")
        } else if target == Target::ImageIndex(image, variant) {
            Some("the image index that was named binds it")
        } else if image == ATTACKERS_IMAGE && variant == 1 {
            Some("the image that was named has it as its own table of contents")
        } else if self.signatures.iter().any(vouched) {
            Some("a key that is trusted here signed it")
        } else if naming == Naming::Tag && self.attached.contains(&(place, image, variant)) {
            Some("it was attached to the image here, which was named by tag")
        } else {
            None
        }
    }
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

#[test]
fn no_lie_reaches_a_digest_over_the_cache() {
    let seen = RefCell::new(Seen::new());
    let config = Config {
        cases: 256,
        ..Config::with_source_file(file!())
    };
    TestRunner::new(config)
        .run(&prop::collection::vec(event(), 1..60), |events| {
            play(&events, &mut seen.borrow_mut())
        })
        .unwrap();
    let seen = seen.into_inner();
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
