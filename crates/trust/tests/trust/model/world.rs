//! Registries, and a host that uses the trust module as Xebec does.

use std::collections::{BTreeMap, BTreeSet};

use xebec_format::digest::Digest;
use xebec_trust::{
    Binding, Listing, Naming, Policy, PrivateKey, Record, Root, SignatureManifest, SignaturePush,
    bound_artifact, sign, verify,
};

use super::names::*;

/// The manifest at a signature tag, and its payloads.
pub(crate) type Signed = (Vec<u8>, Vec<Vec<u8>>);

/// Registries and the host's cache.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) attached: BTreeSet<(u8, u8, u8)>,
    /// By repository, image, variant: what is at the signature tag.
    signatures: BTreeMap<(u8, u8, u8), Signed>,
    pub(crate) tags: BTreeMap<u8, Target>,
    pub(crate) policy: u8,
    /// `roots.json` of each cached index, as bytes.
    pub(crate) cache: BTreeMap<(u8, u8), Vec<u8>>,
}

impl World {
    pub(crate) fn record(&self, layer_number: u8, variant: u8) -> Option<Record> {
        let bytes = self.cache.get(&(layer_number, variant))?;
        let (layer, index) = (layer(layer_number), index(layer_number, variant));
        Some(Record::parse(bytes, layer, index).unwrap_or_else(|_| Record::new(layer, index)))
    }

    pub(crate) fn learn(&mut self, layer_number: u8, variant: u8, change: impl FnOnce(&mut Record)) {
        let fresh = || Record::new(layer(layer_number), index(layer_number, variant));
        let mut record = self.record(layer_number, variant).unwrap_or_else(fresh);
        change(&mut record);
        self.cache
            .insert((layer_number, variant), serde_json::to_vec(&record).unwrap());
    }

    pub(crate) fn sign(&mut self, repository_number: u8, image: u8, variant: u8, key: u8, made_for: u8) {
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
    pub(crate) fn run(&mut self, place: u8, target: Target, naming: Naming) -> Vec<Option<(u8, Root)>> {
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
            let listing = Listing::new(&repository(place));
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
