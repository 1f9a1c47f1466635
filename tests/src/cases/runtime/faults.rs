//! A service starts, lazily, whatever is wrong with its zone.

use std::fs;

use anyhow::{Context, Result, ensure};
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_format::runtime_image::Zone;
use xebec_testkit::registry::{Fault, When};

use super::support::{Published, Service, expect_lazy, expect_recorded, number, problem};
use crate::runner::Outcome;
use crate::world::World;

/// A zone that carries other bytes than the index that its recording names: the index comes from its artifact, and the
/// pages are brought in.
pub(super) fn wrong_index(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;
    let mut published = Published::new(lab, &names.repository, &told)?;
    // Indexes that could be used, but say another mode of a file; and the zone as it was behind them.
    let mut zone = Vec::new();
    let carried = &mut published.recording.indexes;
    ensure!(carried.len() == 2, "{carried:?}");
    for (carried, layer) in carried.iter_mut().zip(&published.recording.layers) {
        let index = lab.registry.blob("app", &layer.index).context("no index")?;
        let mut index = LayerIndex::decode(&index)?;
        let entry = index.entries.last_mut().context("no entry")?;
        entry.metadata.mode ^= 0o111;
        let forged = index.encode();
        carried.offset = zone.len() as u64;
        carried.length = forged.len() as u64;
        zone.extend(forged);
    }
    let before = zone.len() as u64;
    let old = published.zone()?;
    zone.extend(lab.registry.blob("app", &old).context("no zone")?);
    for segment in &mut published.recording.segments {
        segment.offset += before;
    }
    published.recording.zones = vec![Zone {
        digest: Digest::of(&zone),
        size: zone.len() as u64,
    }];
    let changed = vec![(0, published.recording.encode()), (1, zone)];
    let wrong = lab.push_indexed(&service.image, "wrong")?;
    published.attach(lab, "app", &wrong, changed)?;
    let stats = service.start("root", &[&wrong.tag])?;
    expect_recorded(&stats)?;
    let asked = service.asked();
    let indexes = published
        .recording
        .layers
        .iter()
        .map(|layer| layer.index.to_string());
    for index in indexes {
        ensure!(asked.iter().any(|path| path.ends_with(&index)), "{asked:#?}");
    }
    service.expect_truth("root", &wrong.tag)?;
    Ok(Outcome::Passed(format!("{} requests", asked.len())))
}

/// A zone that is wrong, cut off, refused or gone costs the start time and never bytes; it is said what went wrong.
pub(super) fn fallback(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;
    let published = Published::new(lab, &names.repository, &told)?;
    let zone = published.zone()?;
    let right = lab.registry.blob("app", &zone).context("no zone")?;
    let status = |code| Fault::Status {
        code,
        retry_after: None,
    };
    // With it, which proves that the ways below would otherwise have brought everything.
    let whole = service.start("whole", &[&names.tag])?;
    expect_recorded(&whole)?;
    // A request that is cut off goes on where it ended.
    let cut = When::blob().path(&zone.to_string());
    lab.registry.inject(cut, Fault::Truncate(300_000));
    let healed = service.start("healed", &[&names.tag])?;
    expect_recorded(&healed)?;
    ensure!(number(&healed, "/network/retries")? > 0, "{healed:#}");
    service.expect_truth("healed", &names.tag)?;
    // The words that must be in the problem of each.
    let digest = zone.to_string();
    let faults: [(&str, Option<Fault>, &[&str]); 5] = [
        ("wrong-bytes", Some(Fault::WrongBytes), &[&digest, "segment"]),
        ("truncate", Some(Fault::Truncate(0)), &[&digest]),
        ("status-500", Some(status(500)), &[&digest, "500"]),
        ("forbidden", Some(status(403)), &[&digest]),
        ("removed", None, &[&digest]),
    ];
    let mut problems = Vec::new();
    for (name, fault, words) in faults {
        lab.registry.clear_faults();
        lab.registry.put_blob_as("app", zone, right.clone());
        match fault {
            Some(fault) => lab.registry.inject(When::blob().path(&digest), fault),
            None => lab.registry.remove_blob("app", &zone),
        }
        let stats = service.start(name, &[&names.tag])?;
        let said = problem(&stats)?.with_context(|| format!("{name}: no problem: {stats:#}"))?;
        for word in words {
            ensure!(said.contains(word), "{name}: {word:?} is not in {said:?}");
        }
        ensure!(number(&stats, "/fills/spans")? > 0, "{name}: {stats:#}");
        ensure!(number(&stats, "/fills/failures")? == 0, "{name}: {stats:#}");
        ensure!(number(&stats, "/upper_requests")? > 0, "{name}: {stats:#}");
        service
            .expect_truth(name, &names.tag)
            .with_context(|| format!("after {name}"))?;
        service.expect_sound(name, &names.tag)?;
        lab.logged(name, &["runtime image"])?;
        problems.push(format!("{name}: {said}"));
    }
    Ok(Outcome::Passed(problems.join("\n")))
}

/// The source of pages is written down before the first of them. Where that cannot be done, nothing is brought in.
pub(super) fn unnoted(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;
    let published = Published::new(lab, &names.repository, &told)?;
    let zone = published.zone()?.to_string();
    let mut problems = Vec::new();
    for name in ["recording", "layers"] {
        lab.xebec(name, &["pull", &names.tag])?.expect(0, &[])?;
        let root = lab.path(name);
        if name == "recording" {
            // A file where the folder of recordings would be.
            let recordings = root.join("runtime");
            if recordings.exists() {
                fs::remove_dir_all(&recordings)?;
            }
            fs::write(recordings, b"")?;
        } else {
            for layer in &published.recording.layers {
                let folder = root
                    .join("layers")
                    .join(layer.layer.hex())
                    .join(layer.index.hex());
                fs::create_dir(folder.join("injected.json"))?;
            }
        }
        let stats = service.start(name, &[&names.tag])?;
        expect_lazy(&stats)?;
        // Its indexes are here, so nothing but pages would be asked of it.
        let asked = service.asked();
        ensure!(!asked.iter().any(|path| path.ends_with(&zone)), "{asked:#?}");
        problems.push(problem(&stats)?.with_context(|| format!("no problem: {stats:#}"))?);
        lab.logged(name, &["nothing is brought in"])?;
        service.expect_truth(name, &names.tag)?;
    }
    Ok(Outcome::Passed(problems.join("\n")))
}
