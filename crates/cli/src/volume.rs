//! `xebec volume`.

use std::collections::BTreeMap;

use serde::Serialize;
use xebec_kernel::clock::seconds_since_1970;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_volume::{VolumeError, VolumeInfo, VolumeStore};

use crate::args::{VolumeCommand, VolumeListArgs, VolumePruneArgs, VolumeRemoveArgs};
use crate::container_lookup::directories;
use crate::failures::Failures;
use crate::template::print_found;
use crate::text;

/// A volume as `--json` shows it, with docker's names.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown {
    name: String,
    driver: &'static str,
    mountpoint: String,
    created_at: String,
    labels: BTreeMap<String, String>,
    anonymous: bool,
    /// The containers that use it, also those that have ended.
    containers: Vec<String>,
}

impl From<VolumeInfo> for Shown {
    fn from(volume: VolumeInfo) -> Self {
        Self {
            name: volume.name,
            driver: "local",
            mountpoint: volume.mountpoint.display().to_string(),
            created_at: xebec_kernel::clock::rfc3339(volume.created),
            labels: volume.labels,
            anonymous: volume.anonymous,
            containers: volume.containers,
        }
    }
}

/// `xebec volume …`.
pub(crate) fn command(paths: &Paths, command: &VolumeCommand) -> Result<(), Failure> {
    let volumes = directories(paths).volumes();
    match command {
        VolumeCommand::Create(args) => {
            let labels = args.labels.iter().map(|label| {
                let (name, value) = label.split_once('=').unwrap_or((label, ""));
                (name.to_owned(), value.to_owned())
            });
            let name = volumes.create(args.name.as_deref(), labels).map_err(failure)?;
            outln!("{name}");
        }
        VolumeCommand::Ls(args) => list(&volumes, args)?,
        VolumeCommand::Inspect { names, format } => {
            let mut failures = Failures::default();
            let found = names
                .iter()
                .map(|name| volumes.get(name).map(Shown::from).map_err(failure));
            let found: Vec<Shown> = found.filter_map(|one| failures.keep(one)).collect();
            failures.keep(print_found(&found, format.as_ref()));
            failures.end()?;
        }
        VolumeCommand::Rm(args) => remove(&volumes, args)?,
        VolumeCommand::Prune(args) => prune(&volumes, args)?,
    }
    Ok(())
}

fn list(volumes: &VolumeStore, args: &VolumeListArgs) -> Result<(), Failure> {
    let mut found = volumes.list().map_err(failure)?;
    found.retain(|volume| !args.unused || volume.containers.is_empty());
    if args.json.json {
        let shown: Vec<Shown> = found.into_iter().map(Shown::from).collect();
        return text::print_json(&shown);
    }
    if args.quiet {
        found.iter().for_each(|volume| outln!("{}", volume.name));
        return Ok(());
    }
    let mut rows = vec![text::row(["VOLUME", "CREATED", "USED BY"])];
    let now = seconds_since_1970();
    for volume in found {
        let users = match volume.containers.is_empty() {
            true => "-".to_owned(),
            false => volume.containers.join(", "),
        };
        rows.push(vec![
            volume.name,
            text::ago(now.saturating_sub(volume.created)),
            users,
        ]);
    }
    out!("{}", text::table(&rows));
    Ok(())
}

/// Removes the volumes that can be removed, prints their names, and fails if there were others.
fn remove(volumes: &VolumeStore, args: &VolumeRemoveArgs) -> Result<(), Failure> {
    let mut failures = Failures::default();
    for name in &args.names {
        match volumes.remove(name) {
            Ok(()) => outln!("{name}"),
            Err(VolumeError::Missing(_)) if args.force => {}
            Err(error) => failures.add(failure(error)),
        }
    }
    failures.end()
}

fn prune(volumes: &VolumeStore, args: &VolumePruneArgs) -> Result<(), Failure> {
    let (removed, failed) = volumes.prune(args.all).map_err(failure)?;
    match args.json.json {
        true => text::print_json(&removed)?,
        false => removed.iter().for_each(|name| outln!("{name}")),
    }
    let mut failures = Failures::default();
    failed.into_iter().for_each(|error| failures.add(failure(error)));
    failures.end()
}

fn failure(error: VolumeError) -> Failure {
    let kind = match error {
        VolumeError::Missing(_) => FailureKind::NotFound,
        VolumeError::Name(_) | VolumeError::Used { .. } => FailureKind::Usage,
        _ => FailureKind::Host,
    };
    Failure::new(kind, error)
}
