//! The meaning of a name in `xebec explain`, and the waits that belong to it.
//!
//! A container's waits are those of processes in its control group. Its name may have been used before, so the control group's
//! random part tells which container it was: the newest is meant, or the one that `NAME@RUN` names. An image's waits are those on
//! its layers, which other images may have as well: those of containers of other images are not its.

use std::collections::{BTreeMap, HashMap};

use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_images::record::Records;
use xebec_protocol::explain::WaitReport;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::history::History;
use xebec_protocol::wire::Holder;
use xebec_views::views::ViewRecord;

use crate::container_runs::LiveContainer;

/// The manifests of containers' images, by the container's name and the random part of its control group's name.
pub(super) type Images<'a> = HashMap<(&'a str, Option<&'a str>), Digest>;

/// The facts about waits, containers, views and images.
pub(super) struct Known<'a> {
    pub(super) history: &'a History,
    pub(super) live: &'a [LiveContainer],
    pub(super) views: &'a [ViewRecord],
    pub(super) records: &'a Records,
}

/// Which waits have to do with a name.
pub(super) struct Subject {
    /// The meaning that the name was taken in, for people.
    pub(super) text: String,
    /// Other containers of that name, newest first.
    pub(super) others: Vec<String>,
    whose: Whose,
}

enum Whose {
    /// Waits of this container, and of processes outside of all containers on its layers since it was requested.
    Container {
        name: String,
        run: Option<String>,
        outside: Option<(Vec<LayerKey>, u64)>,
    },
    /// Waits on these layers, but not those of containers of other images.
    Images {
        layers: Vec<LayerKey>,
        manifests: Vec<Digest>,
    },
}

impl Subject {
    pub(super) fn has(&self, wait: &WaitReport, images: &Images<'_>) -> bool {
        let key = wait
            .layer
            .zip(wait.index)
            .map(|(layer, index)| LayerKey { layer, index });
        match (&self.whose, &wait.container) {
            (Whose::Container { name, run, .. }, Some(other)) => name == other && *run == wait.container_run,
            (Whose::Container { outside, .. }, None) => outside.as_ref().is_some_and(|(layers, since)| {
                wait.began_ms >= *since && key.is_some_and(|key| layers.contains(&key))
            }),
            (Whose::Images { layers, manifests }, container) => {
                let image = container.as_deref();
                let image = image.and_then(|name| images.get(&(name, wait.container_run.as_deref())));
                key.is_some_and(|key| layers.contains(&key))
                    && image.is_none_or(|manifest| manifests.contains(manifest))
            }
        }
    }
}

impl Known<'_> {
    /// The images of the containers that are known.
    pub(super) fn images(&self) -> Images<'_> {
        let containers = self.history.containers.iter();
        containers
            .map(|run| ((run.name.as_str(), run.run.as_deref()), run.manifest))
            .collect()
    }

    /// The subject that a name means.
    ///
    /// # Errors
    /// When nothing of that name is known.
    pub(super) fn subject(&self, name: &str) -> Result<Subject, Failure> {
        if let Some(subject) = self.container(name).or_else(|| self.view(name)) {
            return Ok(subject);
        }
        self.image(name)?.ok_or_else(|| {
            let message = format!(
                "{name} is no container, view or image that this host knows; `xebec ps`, `xebec daemon status` and \
                 `xebec images` list them"
            );
            Failure::new(FailureKind::NotFound, message)
        })
    }

    /// The containers of a name, by the random part of their control groups' names, with the time of the last fact about each.
    fn runs(&self, name: &str) -> BTreeMap<Option<&str>, u64> {
        let containers = self.history.containers.iter();
        let containers = containers
            .filter(|run| run.name == name)
            .map(|run| (run.run.as_deref(), run.created_ms));
        let waits = self.history.waits.iter();
        let waits = waits
            .filter(|wait| wait.container.as_deref() == Some(name))
            .map(|wait| (wait.container_run.as_deref(), wait.began_ms));
        let mut runs = BTreeMap::new();
        for (run, at) in containers.chain(waits) {
            let latest = runs.entry(run).or_insert(at);
            *latest = at.max(*latest);
        }
        runs
    }

    fn container(&self, named: &str) -> Option<Subject> {
        let (name, wanted) = match self.runs(named).is_empty() {
            false => (named, None),
            true => named.rsplit_once('@').map(|(name, run)| (name, Some(run)))?,
        };
        let mut runs: Vec<(Option<&str>, u64)> = self.runs(name).into_iter().collect();
        let live = |run: Option<&str>| {
            let mut all = self.live.iter();
            all.find(|live| live.run.name == name && live.run.run.as_deref() == run)
        };
        runs.sort_by_key(|(run, at)| std::cmp::Reverse((live(*run).is_some(), *at)));
        let place = match wanted {
            None => 0,
            Some(wanted) => runs.iter().position(|(run, _)| *run == Some(wanted))?,
        };
        if runs.is_empty() {
            return None;
        }
        let (run, _) = runs.remove(place);
        let others = runs
            .iter()
            .filter_map(|(run, _)| Some(format!("{name}@{}", (*run)?)));
        let mut images = self.history.containers.iter().rev();
        let image = images.find(|other| other.name == name && other.run.as_deref() == run);
        let image = image.map_or_else(String::new, |run| format!(" of {}", run.reference));
        Some(Subject {
            text: format!("container {named}{image}"),
            others: others.collect(),
            whose: Whose::Container {
                name: name.to_owned(),
                run: run.map(str::to_owned),
                outside: live(run).map(|live| (live.layers.clone(), live.run.created_ms)),
            },
        })
    }

    fn view(&self, name: &str) -> Option<Subject> {
        let is_holder = |holder: &Holder| match holder {
            Holder::Directory { path } => path.as_os_str() == name,
            Holder::Process { name: held, .. } => held == name,
            Holder::Snapshot { .. } => false,
        };
        let view = self.views.iter().find(|view| {
            view.name == name || view.path.as_os_str() == name || view.holders.iter().any(is_holder)
        })?;
        let held: Vec<(&str, Digest)> = view.holders.iter().map(|holder| view.image_of(holder)).collect();
        let mut references: Vec<&str> = held.iter().map(|(reference, _)| *reference).collect();
        let mut manifests: Vec<Digest> = held.iter().map(|(_, manifest)| *manifest).collect();
        if held.is_empty() {
            references.push(&view.reference);
            manifests.push(view.manifest);
        }
        references.sort_unstable();
        references.dedup();
        Some(Subject {
            text: format!("view {} of {}", view.path.display(), references.join(" and ")),
            others: Vec::new(),
            whose: Whose::Images {
                layers: view.layers.iter().map(|pair| (*pair).into()).collect(),
                manifests,
            },
        })
    }

    fn image(&self, name: &str) -> Result<Option<Subject>, Failure> {
        let Some(record) = self.records.named(name)? else {
            return Ok(None);
        };
        Ok(Some(Subject {
            text: format!("image {name} ({})", record.manifest_digest),
            others: Vec::new(),
            whose: Whose::Images {
                layers: record.layers.iter().map(|layer| layer.key()).collect(),
                manifests: vec![record.manifest_digest],
            },
        }))
    }
}

#[cfg(test)]
#[path = "subject_tests.rs"]
mod tests;
