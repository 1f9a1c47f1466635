//! Pages that are on this host's disk and not in memory: a start asks for them before anything reads them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};

use super::support::{PAGE, START, Service, expect_recorded};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run};

/// Pages that a service touched come into memory at its next start, even if it does not touch them then, and nothing besides.
pub(super) fn read_ahead(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&names.tag])?;
    expect_recorded(&service.start("root", &[&names.tag])?)?;

    // Other files in the place of those that the image has, so that nobody reads the image's.
    let covered = lab.path("covered");
    fs::create_dir(&covered)?;
    for path in START {
        let name = Path::new(path).file_name().context("a name")?;
        fs::write(covered.join(name), b"instead")?;
    }
    let data = data_file(
        &lab.path("root"),
        &service.image.layers.get(1).context("a layer")?.digest.hex(),
    )?;
    let file = File::open(&data)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let before = in_memory(&data)?;
    ensure!(before < PAGE as u64, "{before} bytes stay in memory");
    let volume = format!("{}:/start:ro", covered.display());
    service.start("root", &["--volume", &volume, &names.tag])?;
    let touched: usize = START
        .iter()
        .map(|path| {
            Ok(service
                .file(path.trim_start_matches('/'))?
                .len()
                .next_multiple_of(PAGE))
        })
        .sum::<Result<usize>>()?;
    wait_until(Duration::from_secs(30), "the pages to come into memory", || {
        Ok(in_memory(&data)? >= touched as u64)
    })?;
    let after = in_memory(&data)?;
    // The disk's own blocks of bookkeeping do not count; two files beside those are 4 MiB each.
    ensure!(after < 2 * touched as u64, "{after} bytes instead of {touched}");
    Ok(Outcome::Passed(format!(
        "{after} bytes of {touched} came into memory"
    )))
}

/// The data file of a layer.
fn data_file(root: &Path, layer: &str) -> Result<PathBuf> {
    let folder = root.join("layers").join(layer);
    let index = fs::read_dir(&folder)
        .with_context(|| format!("list {}", folder.display()))?
        .next()
        .context("no index")??;
    Ok(index.path().join("data"))
}

/// Bytes of a file that the page cache holds.
fn in_memory(path: &Path) -> Result<u64> {
    let mut command = Command::new("fincore");
    command
        .args(["--bytes", "--noheadings", "--output", "RES"])
        .arg(path);
    let output = run(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .with_context(|| format!("fincore said {text:?}"))
}
