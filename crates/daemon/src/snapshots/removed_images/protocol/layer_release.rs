//! The actor that lets layers of removed images go, step by step.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::json;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_images::admission::chain_ids;
use xebec_images::record::{ImageRecord, KeptFor, LayerRecord};
use xebec_snapshotter::lazy::Shown;
use xebec_trust::Root;

use super::super::plan::{Plan, Seen, plan};
use super::world::{Actor, World};
use super::{IMAGES, Without};

/// The facts that the actor has seen so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct LayerRelease {
    at: Stage,
    gone: BTreeSet<u8>,
    pulled: BTreeSet<u8>,
    snapshots: BTreeMap<Vec<u8>, u8>,
    found: BTreeSet<u8>,
    viewed: BTreeSet<u8>,
    records: BTreeMap<u8, bool>,
    /// Images and layers that are done with.
    next: (usize, usize),
    have_all_gone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Stage {
    #[default]
    Take,
    Hold,
    Shown,
    Found,
    Plan,
    Mark,
    Remove,
}

fn digest(name: &str, number: u8) -> Digest {
    Digest::of(format!("{name} {number}").as_bytes())
}

fn key(layer: u8) -> LayerKey {
    LayerKey {
        layer: digest("layer", layer),
        index: digest("index", layer),
    }
}

pub(in super::super) fn record(image: u8, is_for_commands: bool) -> ImageRecord {
    let layers = IMAGES[usize::from(image)];
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| digest("diff", *layer)).collect();
    let layers = layers.iter().map(|layer| LayerRecord {
        layer: key(*layer).layer,
        index: key(*layer).index,
        root: Root::Registry,
    });
    ImageRecord {
        references: Default::default(),
        former: Default::default(),
        indexes: Default::default(),
        platforms: Default::default(),
        manifest_digest: digest("manifest", image),
        media_type: String::new(),
        manifest: String::new(),
        config: json!({"rootfs": {"type": "layers", "diff_ids": diff_ids}}).to_string(),
        layers: layers.collect(),
        last_used: 0,
        pinned: false,
        kept_for: Some(if is_for_commands {
            KeptFor::Commands
        } else {
            KeptFor::Containerd
        }),
        user: None,
    }
}

fn records(of: &BTreeMap<u8, bool>) -> Vec<ImageRecord> {
    of.iter()
        .map(|(image, is_for_commands)| record(*image, *is_for_commands))
        .collect()
}

impl LayerRelease {
    /// The plan by the facts that were seen.
    fn plan(&self, without: Without) -> Plan {
        let name = |image: &u8| digest("manifest", *image).to_string();
        let chain = |layers: &Vec<u8>| {
            let diff_ids: Vec<Digest> = layers.iter().map(|layer| digest("diff", *layer)).collect();
            chain_ids(&diff_ids).last().unwrap().to_string()
        };
        let mut shown = Shown {
            gone: self.gone.iter().map(name).collect(),
            pulled: self.pulled.iter().map(name).collect(),
            ..Shown::default()
        };
        for (layers, image) in &self.snapshots {
            let depth = shown.kept.entry(name(image)).or_default();
            *depth = (*depth).max(layers.len() as u32);
            if without != Without::Chains {
                shown.chains.insert(chain(layers));
            }
        }
        let found: HashSet<Digest> = self
            .found
            .iter()
            .map(|image| digest("manifest", *image))
            .collect();
        let viewed: HashSet<Digest> = self
            .viewed
            .iter()
            .map(|image| digest("manifest", *image))
            .collect();
        let seen = Seen {
            shown: &shown,
            found: Some(&found),
            is_viewed: &|manifest| viewed.contains(&manifest),
        };
        plan(records(&self.records), &seen)
    }
}

fn number_of(manifest: Digest) -> u8 {
    (0..IMAGES.len() as u8)
        .find(|image| digest("manifest", *image) == manifest)
        .unwrap()
}

impl World {
    pub(super) fn let_go(&mut self, mut seen: LayerRelease, without: Without) -> Actor {
        match seen.at {
            Stage::Take => match self.gone.take() {
                Some(gone) => (seen.gone, seen.at) = (gone, Stage::Hold),
                None => return Actor::Done,
            },
            // One at a time.
            Stage::Hold if self.is_held => {}
            Stage::Hold => {
                self.is_held = true;
                seen.at = Stage::Shown;
                if without != Without::Pulls {
                    seen.pulled = self.offered();
                }
            }
            Stage::Shown => (seen.snapshots, seen.at) = (self.snapshots.clone(), Stage::Found),
            Stage::Found => {
                if without != Without::Forgetting {
                    self.admissions.retain(|image| !seen.gone.contains(image));
                }
                (seen.found, seen.at) = (self.admissions.clone(), Stage::Plan);
            }
            Stage::Plan => {
                (seen.records, seen.viewed) = (self.records.clone(), self.used(false));
                (seen.at, seen.have_all_gone) = (Stage::Mark, true);
            }
            Stage::Mark | Stage::Remove => return self.carry_out(seen, without),
        }
        Actor::LetGo(seen)
    }

    fn carry_out(&mut self, mut seen: LayerRelease, without: Without) -> Actor {
        let plan = seen.plan(without);
        let Some(leaving) = plan.leaving.get(seen.next.0) else {
            if without != Without::ForgettingMore {
                let stays = |image: &u8| seen.found.contains(image) || seen.pulled.contains(image);
                self.admissions.retain(stays);
            }
            self.is_held = false;
            if !plan.is_all || !seen.have_all_gone {
                self.gone.get_or_insert_default().extend(&seen.gone);
            }
            return Actor::Done;
        };
        let image = number_of(leaving.record.manifest_digest);
        let kept = leaving.record.layers.len() - leaving.layers().count();
        let Some(layer) = IMAGES[usize::from(image)].get(kept + seen.next.1).copied() else {
            let relied_on = self
                .records
                .get(&image)
                .map(|is_for_commands| record(image, *is_for_commands));
            let is_as_it_was = relied_on.is_some_and(|record| !plan.is_wanted_again(&record));
            if leaving.is_whole && seen.have_all_gone && (is_as_it_was || without == Without::Comparing) {
                self.records.remove(&image);
            }
            seen.next = (seen.next.0 + 1, 0);
            return Actor::LetGo(seen);
        };
        let is_used = self
            .used(true)
            .iter()
            .any(|user| IMAGES[usize::from(*user)].contains(&layer));
        let is_relied_on = records(&self.records)
            .iter()
            .any(|record| plan.is_relied_on(record, key(layer)));
        match seen.at {
            Stage::Mark if plan.wanted.contains(&key(layer)) || !self.layers.contains(&layer) => {
                seen.next.1 += 1
            }
            Stage::Mark if is_used => {
                seen.have_all_gone = false;
                seen.next.1 += 1;
            }
            Stage::Mark => (self.going, seen.at) = (Some(layer), Stage::Remove),
            _ => {
                match is_relied_on && without != Without::AskingAgain {
                    true => seen.have_all_gone = false,
                    false => drop(self.layers.remove(&layer)),
                }
                self.going = None;
                seen.at = Stage::Mark;
                seen.next.1 += 1;
            }
        }
        Actor::LetGo(seen)
    }
}
