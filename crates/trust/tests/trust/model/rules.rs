//! The model: what happened as plain tuples, and the rules in plain words.

use std::collections::BTreeSet;

use xebec_trust::{Naming, Root};

use super::names::*;

/// The events that have happened, and the facts that the host has seen of them.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) attached: BTreeSet<(u8, u8, u8)>,
    /// Repository, image, variant, key, made for; in the order of signing.
    pub(crate) signatures: Vec<(u8, u8, u8, u8, u8)>,
    pub(crate) policy: u8,
    /// Layer, variant of what is cached.
    pub(crate) cached: BTreeSet<(u8, u8)>,
    pub(crate) proven: BTreeSet<(u8, u8)>,
    pub(crate) disproved: BTreeSet<(u8, u8)>,
    /// Layer, variant, the target whose documents bind.
    pub(crate) bound: BTreeSet<(u8, u8, Target)>,
    /// Layer, variant, repository.
    pub(crate) listed: BTreeSet<(u8, u8, u8)>,
    /// Layer, variant, key, made for.
    pub(crate) signed: BTreeSet<(u8, u8, u8, u8)>,
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
        let listed = self.listed.contains(&(layer, variant, place));
        (listed && naming == Naming::Tag && self.rules().tags[usize::from(place)]).then_some(Root::Registry)
    }

    pub(crate) fn run(&mut self, place: u8, target: Target, naming: Naming) -> Vec<Option<(u8, Root)>> {
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
                self.listed.insert((layer, variant, place));
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

    /// The promise itself, from the events alone: an event that allowed this host to use a lie, if there is one.
    pub(crate) fn excuse(
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
        let attached_here = |(place_of, i, v): &(u8, u8, u8)| {
            IMAGES[usize::from(*i)].contains(&layer) && (*place_of, *v) == (place, variant)
        };
        if variant == 0 {
            Some("it is true")
        } else if target == Target::ImageIndex(image, variant) {
            Some("the image index that was named binds it")
        } else if image == ATTACKERS_IMAGE && variant == 1 {
            Some("the image that was named has it as its own table of contents")
        } else if self.signatures.iter().any(vouched) {
            Some("a key that is trusted here signed it")
        } else if naming == Naming::Tag && self.attached.iter().any(attached_here) {
            Some("it was attached to an image of this repository, and the image was named by tag")
        } else {
            None
        }
    }
}
