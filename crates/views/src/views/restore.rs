//! A worker that begins: which views earlier ones left mounted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::{error, info, warn};
use xebec_fill::fill_service::FillService;
use xebec_kernel::mount;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use super::departed::depart;
use super::own_mounts::{remove_own_mount, remove_unused_mount};
use super::readers::Readers;
use super::record::ViewRecord;
use super::table::Views;
use crate::unguarded_views::Suspects;
use crate::view;

impl Views {
    /// Reads the records of an earlier worker back, serves their layers, and drops views that are not mounted. After
    /// a time in which nobody held the group, those that may have served holes become suspects.
    ///
    /// # Errors
    /// When the mounts cannot be listed.
    pub fn restore(
        paths: &Paths,
        fills: &FillService,
        suspects: &Suspects,
        was_unguarded: bool,
        linger: Duration,
    ) -> Result<Self, Failure> {
        fs::create_dir_all(paths.mounts())
            .map_err(|error| Failure::host(format!("make {}", paths.mounts().display()), error))?;
        let mut table = mounted_views(paths)?;
        serve_layers(&table, suspects, fills);
        if was_unguarded {
            suspect_unguarded(paths, fills, suspects, &mut table);
        }
        restore_recording_mounts(paths, fills, &table, was_unguarded);
        restore_arriving_mounts(paths, fills, &table, was_unguarded);
        if !table.is_empty() {
            info!("{} views found mounted", table.len());
        }
        Ok(Self {
            paths: paths.clone(),
            linger,
            readers: Readers::of(&table),
            table: Mutex::new(table),
            known: Mutex::default(),
        })
    }
}

type Table = BTreeMap<String, ViewRecord>;

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Views on record that are mounted. Leftovers of the others are removed.
fn mounted_views(paths: &Paths) -> Result<Table, Failure> {
    let mut table = Table::new();
    for path in entries(&paths.mounts()) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let record = fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<ViewRecord>(&bytes).ok());
        let is_mounted = |record: &ViewRecord| {
            mount::is_mounted(&record.path).map_err(|error| Failure::host("list the mounts", error))
        };
        match record {
            Some(record) if is_mounted(&record)? => {
                table.insert(record.name.clone(), record);
            }
            record => {
                // An earlier worker may have come so far, or somebody unmounted it while there was none.
                if let Some(record) = &record {
                    depart(paths, record);
                    let _ = fs::remove_file(view::metadata(paths, &record.name));
                }
                let _ = fs::remove_file(&path);
            }
        }
    }
    Ok(table)
}

/// Serves the layers of mounted views, and of views that are gone but still read.
fn serve_layers(table: &Table, suspects: &Suspects, fills: &FillService) {
    for record in table.values() {
        for pair in &record.layers {
            if let Err(error) = fills.serve((*pair).into(), None) {
                warn!(
                    "view {}: {error}; reads of that layer fail until the image is mounted again",
                    record.name
                );
            }
        }
    }
    for pair in suspects.layers() {
        if let Err(error) = fills.serve(pair.into(), None) {
            warn!("an old view: {error}");
        }
    }
}

/// Takes out the views that may have shown holes while nobody held the group.
fn suspect_unguarded(paths: &Paths, fills: &FillService, suspects: &Suspects, table: &mut Table) {
    let is_complete = |record: &ViewRecord| {
        let layers = record.layers.iter();
        let mut served = layers.map(|pair| fills.find((*pair).into()));
        served.all(|served| served.is_some_and(|served| served.layer().is_complete()))
    };
    let views: Vec<_> = table
        .values()
        .map(|record| (record.clone(), is_complete(record)))
        .collect();
    for name in suspects.find(paths, &views) {
        table.remove(&name);
        let _ = fs::remove_file(paths.mounts().join(format!("{name}.json")));
    }
}

/// Guards the mounts of views that are recorded, and removes those of views that are gone.
fn restore_recording_mounts(paths: &Paths, fills: &FillService, table: &Table, was_unguarded: bool) {
    for path in entries(&paths.recording_mounts()) {
        let is_used = |record: &ViewRecord| record.own_mount.as_ref() == Some(&path);
        if !table.values().any(is_used) {
            remove_own_mount(paths, &path);
        } else if was_unguarded && let Err(error) = fills.guard(&path) {
            error!("{error}");
        }
    }
}

/// Guards the mounts by which views read pages that are still coming, and removes those of views that are gone.
fn restore_arriving_mounts(paths: &Paths, fills: &FillService, table: &Table, was_unguarded: bool) {
    for path in entries(&paths.arriving_mounts()) {
        let mut arriving = table.values().flat_map(|record| &record.arriving);
        let known = arriving.find(|part| part.mount == path);
        // One without a record is still read if it cannot be unmounted, and its readers must go on raising events.
        let is_due = match known {
            Some(part) => was_unguarded && !part.over,
            None => !remove_unused_mount(paths, &path),
        };
        if is_due && let Err(error) = fills.guard(&path) {
            error!("{error}");
        }
    }
}
