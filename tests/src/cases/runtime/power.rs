//! The power goes after a start by a recording, before or after what it noted came to the disk; and each of its notes is torn.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::support::{Service, expect_recorded, number, problem};
use crate::cases::power::{another_boot, mount_loop, mount_new};
use crate::runner::Outcome;
use crate::world::{World, run};

/// When the power goes after the service was ready, in milliseconds: before anything was synced, and after that.
const MOMENTS: [u64; 4] = [0, 300, 3000, 15_000];

/// The next start after a power cut finds out what the disk lacks, and has the right bytes.
pub(super) fn cut_after_a_start(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&names.tag])?;
    let mut torn = Vec::new();
    let mut kept = Vec::new();
    for moment in MOMENTS {
        let (before, after) = (format!("before{moment}"), format!("after{moment}"));
        let (root, copy) = (lab.path(&before), lab.path(&after));
        mount_new(&root)?;
        lab.xebec(&before, &["version"])?;
        // Settings are not what is lost here.
        run(Command::new("sync").arg("--file-system").arg(&root))?;
        expect_recorded(&service.start(&before, &[&names.tag])?)?;
        std::thread::sleep(Duration::from_millis(moment));
        // The worst that the kernel could choose to write first: names of files, and nothing of what is in them.
        let other = File::create(root.join("other"))?;
        other.set_len(1)?;
        other.sync_all()?;
        run(Command::new(World::go_tool("cutpower")?).arg(&root))?;
        fs::copy(root.with_extension("ext4"), copy.with_extension("ext4"))?;
        let _ = lab.xebec(&before, &["daemon", "stop", "--force"]);
        mount_loop(&copy.with_extension("ext4"), &copy)?;
        torn.push(empty_files(&copy)?.len());
        another_boot(&copy.join("layers"))?;
        let stats = service.start(&after, &[&names.tag])?;
        ensure!(problem(&stats)?.is_none(), "{moment} ms: {stats:#}");
        ensure!(number(&stats, "/fills/failures")? == 0, "{moment} ms: {stats:#}");
        kept.push(number(&stats, "/runtime_image/pages")? - number(&stats, "/runtime_image/missing")?);
        service
            .expect_truth(&after, &names.tag)
            .with_context(|| format!("after {moment} ms"))?;
        service.expect_sound(&after, &names.tag)?;
        lab.stop(&after)?;
        // The torn files are whole: the next start asks for the image's manifest at most.
        let again = service.start(&after, &[&names.tag])?;
        expect_recorded(&again)?;
        let asked = service.asked();
        ensure!(asked.len() <= 1, "{moment} ms: {asked:#?}");
        lab.stop(&after)?;
    }
    ensure!(
        torn.iter().any(|torn| *torn > 0),
        "nothing was torn: this test tests nothing"
    );
    ensure!(
        kept.last().is_some_and(|kept| *kept > 0),
        "nothing was synced: {kept:?}"
    );
    ensure!(
        torn.last() == Some(&0),
        "a note was not synced with what it is about: {torn:?}"
    );
    Ok(Outcome::Passed(format!(
        "after {MOMENTS:?} ms {torn:?} files were empty and {kept:?} pages of the service believed; all of it was right at \
         the next start"
    )))
}

/// One file of a recording is torn, each in turn: the next start uses it no more, or has it from the registry again.
pub(super) fn damage_heals(world: &World) -> Result<Outcome> {
    const DAMAGED: [&str; 5] = [
        "recording",
        "recording.digest",
        "facts.json",
        "injected.json",
        "roots.json",
    ];
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&names.tag])?;
    for name in DAMAGED {
        expect_recorded(&service.start(name, &[&names.tag])?)?;
        lab.stop(name)?;
        let damaged = below(&lab.path(name), &|path| {
            path.file_name().is_some_and(|file| file == name)
        })?;
        ensure!(!damaged.is_empty(), "there is no {name}");
        for path in damaged {
            let file = File::options().write(true).open(&path)?;
            file.set_len(file.metadata()?.len() / 2)?;
        }
        let stats = service.start(name, &[&names.tag])?;
        ensure!(problem(&stats)?.is_none(), "{name}: {stats:#}");
        ensure!(number(&stats, "/fills/failures")? == 0, "{name}: {stats:#}");
        service
            .expect_truth(name, &names.tag)
            .with_context(|| format!("{name} is torn"))?;
        service.expect_sound(name, &names.tag)?;
        expect_recorded(&service.start(name, &[&names.tag])?)?;
        // All of the image was read meanwhile, and the daemon may just be proving that.
        let asked = service.asked();
        let is_search = |path: &String| path.contains("/referrers/") || path.contains("/manifests/sha256");
        ensure!(
            !asked.iter().any(is_search),
            "{name} is asked for again: {asked:#?}"
        );
        lab.stop(name)?;
    }
    Ok(Outcome::Passed(format!(
        "torn one after the other, and right: {}",
        DAMAGED.join(", ")
    )))
}

/// Notes that have a name and nothing in them.
fn empty_files(root: &Path) -> Result<Vec<PathBuf>> {
    const NOTES: [&str; 6] = [
        "index",
        "roots.json",
        "recording",
        "recording.digest",
        "facts.json",
        "injected.json",
    ];
    below(root, &|path| {
        let is_note = path
            .file_name()
            .is_some_and(|name| NOTES.iter().any(|note| name == *note));
        is_note && path.metadata().is_ok_and(|metadata| metadata.len() == 0)
    })
}

/// The files below a directory of which that is so.
fn below(directory: &Path, is_wanted: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(below(&entry.path(), is_wanted)?);
        } else if is_wanted(&entry.path()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
