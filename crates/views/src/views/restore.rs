//! A worker that begins: which views earlier ones left mounted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::time::Duration;

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
        let mut table = BTreeMap::new();
        for entry in fs::read_dir(paths.mounts()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let record = fs::read(&path)
                .ok()
                .and_then(|bytes| serde_json::from_slice::<ViewRecord>(&bytes).ok());
            let mounted = |record: &ViewRecord| {
                mount::is_mounted(&record.path).map_err(|error| Failure::host("list the mounts", error))
            };
            let record = match record {
                Some(record) if mounted(&record)? => record,
                record => {
                    // An earlier worker may have come so far, or somebody unmounted it while there was none.
                    if let Some(record) = &record {
                        depart(paths, record);
                        let _ = fs::remove_file(view::metadata(paths, &record.name));
                    }
                    let _ = fs::remove_file(&path);
                    continue;
                }
            };
            for pair in &record.layers {
                if let Err(error) = fills.serve((*pair).into(), None) {
                    warn!(
                        "view {}: {error}; reads of that layer fail until the image is mounted again",
                        record.name
                    );
                }
            }
            table.insert(record.name.clone(), record);
        }
        for pair in suspects.layers() {
            if let Err(error) = fills.serve(pair.into(), None) {
                warn!("an old view: {error}");
            }
        }
        if was_unguarded {
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
        for entry in fs::read_dir(paths.recording_mounts())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if !table
                .values()
                .any(|record| record.own_mount.as_ref() == Some(&path))
            {
                remove_own_mount(paths, &path);
            } else if was_unguarded && let Err(error) = fills.guard(&path) {
                error!("{error}");
            }
        }
        for entry in fs::read_dir(paths.arriving_mounts())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
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
