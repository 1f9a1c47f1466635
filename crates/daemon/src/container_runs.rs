//! Containers that run, and which image each runs: views do not say, since images of the same layers have one.

use std::path::Path;

use xebec_cache::store::LayerKey;
use xebec_container::Record;
use xebec_protocol::history::ContainerRun;
use xebec_views::views::{ViewRecord, Views};

/// A container that runs.
pub(crate) struct LiveContainer {
    pub(crate) run: ContainerRun,
    /// The layers of its view.
    pub(crate) layers: Vec<LayerKey>,
}

/// The containers whose records are in the run directory, and that are on one of the views.
pub(crate) fn live_containers(run: &Path, views: &Views) -> Vec<LiveContainer> {
    let Ok(running) = xebec_container::list(run) else {
        return Vec::new();
    };
    let views = views.held();
    let live = running
        .records
        .iter()
        .filter_map(|record| live_container(record, &views));
    live.collect()
}

/// The random part of the name of a container's control group, which tells the container from others of its name.
pub(crate) fn run_of(record: &Record) -> Option<String> {
    let group = record.control_group.as_deref()?;
    xebec_container::run_of_cgroup(group).map(str::to_owned)
}

fn live_container(record: &Record, views: &[ViewRecord]) -> Option<LiveContainer> {
    let held = views.iter().find_map(|view| {
        let holder = view.holders.iter().find(|holder| holder.supervises(record))?;
        Some((view, holder))
    });
    let (view, reference, manifest) = match held {
        Some((view, holder)) => {
            let (reference, manifest) = view.image_of(holder);
            (view, reference, manifest)
        }
        None => {
            let view = views.iter().find(|view| view.path == record.view)?;
            (view, view.reference.as_str(), view.manifest)
        }
    };
    Some(LiveContainer {
        run: ContainerRun {
            name: record.id.clone(),
            run: run_of(record),
            reference: reference.to_owned(),
            manifest,
            created_ms: record.created.saturating_mul(1000),
        },
        layers: view.layers.iter().map(|pair| (*pair).into()).collect(),
    })
}
