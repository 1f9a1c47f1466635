//! Pages that enter a recording, and pages that do not.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::explain::Choosing;
use super::support::{PAGE, Published, START, Service, expect_recorded, told};
use crate::lab::{Ended, expect_contents, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// Pages that another process reads meanwhile, by an ordinary mount of the same image in the same root, are not the service's.
pub(super) fn others_do_not_enter(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let words = [&[&names.tag[..], "6s"][..], &START[..]].concat();
    let alone = service.record("alone", &words)?;
    let alone = Published::new(lab, "app", &alone)?;
    let (big, more) = (service.file("rest/big")?, service.file("rest/more")?);
    ensure!(
        alone.pages_of(service.file("start/b")?) == 256,
        "pages are recognised"
    );

    let mut child = service.spawn_record(world, "root", &words)?;
    wait_until(Duration::from_secs(60), "a recording is under way", || {
        Ok(lab
            .path("root-run/recordings")
            .read_dir()
            .is_ok_and(|mut entries| entries.next().is_some()))
    })?;
    let mnt = lab.mount("root", &names.tag, &[])?;
    let mut reads = 0;
    while child.try_wait()?.is_none() {
        expect_contents(&mnt.join("rest/big"), big)?;
        expect_contents(&mnt.join("rest/more"), more)?;
        expect_contents(
            &mnt.join(START[0].trim_start_matches('/')),
            service.file("start/a")?,
        )?;
        reads += usize::from(child.try_wait()?.is_none());
    }
    ensure!(reads > 0, "nothing was read while it was recorded");
    let ended: Ended = child.wait_with_output()?.into();
    ended.expect(0, &[])?;
    let told = told(&ended)?;
    let disturbed = Published::new(lab, "app", &told)?;
    for (name, file) in [("big", big), ("more", more)] {
        let foreign = disturbed.pages_of(file);
        ensure!(foreign == 0, "{foreign} pages of {name} are in the recording");
    }
    let (one, other) = (alone.touched(), disturbed.touched());
    same_pages(&one, &other).context("alone, and while another read")?;
    Ok(Outcome::Passed(format!(
        "{} pages alone, {} while another read everything {reads} times",
        one.len(),
        other.len()
    )))
}

/// Where a layer is complete nobody is asked about its pages any more; the recorder sees them all the same.
pub(super) fn complete_layers(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let fresh = Published::new(lab, "app", &service.record("fresh", &[&names.tag])?)?;
    lab.xebec("complete", &["pull", "--complete", &names.tag])?
        .expect(0, &[])?;
    // In use and in the page cache by an ordinary mount.
    let mnt = lab.mount("complete", &names.tag, &[])?;
    service.expect_files(&mnt)?;
    let complete = Published::new(lab, "app", &service.record("complete", &[&names.tag])?)?;
    let (one, other) = (fresh.touched(), complete.touched());
    same_pages(&one, &other).context("fresh, and where all is there")?;
    // And where a recording brought the pages in before.
    service.start("loaded", &[&names.tag])?;
    let loaded = Published::new(lab, "app", &service.record("loaded", &[&names.tag])?)?;
    same_pages(&one, &loaded.touched()).context("fresh, and where a recording was loaded")?;
    Ok(Outcome::Passed(format!(
        "{} pages fresh, {} of complete layers",
        one.len(),
        other.len()
    )))
}

/// Two services of one image are recorded at the same time in one root.
pub(super) fn two_at_once(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let of = |file: &'static str| [names.tag.clone(), "2s".to_owned(), file.to_owned()];
    let mut children = Vec::new();
    for file in [START[0], START[1]] {
        let words = of(file);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        children.push((file, service.spawn_record(world, "root", &words)?));
    }
    let mut counts = Vec::new();
    for (file, child) in children {
        let ended: Ended = child.wait_with_output()?.into();
        ended.expect(0, &[])?;
        let told = told(&ended)?;
        let published = Published::new(lab, "app", &told)?;
        for (path, contents) in &service.files {
            let pages = published.pages_of(contents);
            let is_own = file.trim_start_matches('/') == *path;
            let whole = contents.len() / 4096;
            ensure!(
                pages == if is_own { whole } else { 0 },
                "{pages} of {path} in {file}'s"
            );
        }
        let words = of(file);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let stats = service.start("other", &words)?;
        expect_recorded(&stats)?;
        counts.push(published.touched().len());
    }
    service.expect_truth("other", &names.tag)?;
    Ok(Outcome::Passed(format!("{counts:?} pages")))
}

/// The same pages, but for a handful: which of its own pages a Go program touches depends a little on its threads.
fn same_pages(one: &[(u16, u64)], other: &[(u16, u64)]) -> Result<()> {
    let only = |these: &[(u16, u64)], those: &[(u16, u64)]| -> Vec<(u16, u64)> {
        let differ = these.iter().filter(|page| !those.contains(page));
        differ.copied().collect()
    };
    let (missing, more) = (only(one, other), only(other, one));
    // The upper layer has files that are read whole: no page more, none less.
    let exact = |pages: &[(u16, u64)]| pages.iter().all(|(layer, _)| *layer == 0);
    ensure!(
        exact(&missing) && exact(&more) && missing.len() + more.len() <= 40,
        "{} pages, {} pages; missing {missing:?}, more {more:?}",
        one.len(),
        other.len()
    );
    Ok(())
}

/// Of several runs each is followed by one that raises no events but for what it reads besides, and that counts, too.
pub(super) fn at_full_speed(world: &World) -> Result<Outcome> {
    let choosing = Choosing::new(world)?;
    let service = &choosing.service;
    let words = choosing.words(&["--repeat", "2", "--settle", "2s"]);
    // Run by run; each second one is at full speed.
    let chosen = ["/start/a", "/start/b", "/start/a", "/start/a"];
    choosing.choose(chosen[0])?;
    let mut child = service.spawn_record(world, "root", &words)?;
    let mut said = BufReader::new(child.stderr.take().context("no stderr")?).lines();
    let (mut runs, mut views) = (0, Vec::new());
    let followed = said.try_for_each(|line| {
        if line? == "ready" {
            runs += 1;
            // It goes on for two seconds.
            views.push(mount_of_recording(service)?);
            chosen.get(runs).map_or(Ok(()), |file| choosing.choose(file))?;
        }
        Ok(())
    });
    let ended: Ended = child.wait_with_output()?.into();
    followed.and_then(|()| ended.expect(0, &[]))?;
    ensure!(runs == chosen.len(), "{runs} runs");
    // Pages in the memory of a view raise no event, and so they make a run fast.
    let is_same = |one: usize, other: usize| views.get(one) == views.get(other);
    ensure!(is_same(0, 1) && is_same(2, 3) && !is_same(0, 2), "{views:?}");
    let published = Published::new(&service.lab, "app", &told(&ended)?)?;
    let (a, b) = (service.file("start/a")?, service.file("start/b")?);
    let found = (published.pages_of(a), published.pages_of(b));
    let wanted = (a.len() / PAGE, b.len() / PAGE);
    ensure!(found == wanted, "{found:?} of {wanted:?} pages");
    let seen = (published.seen_of(a), published.seen_of(b));
    ensure!(seen == ([2].into(), [1].into()), "seen by {seen:?} runs");
    Ok(Outcome::Passed(format!(
        "{} pages that only a fast run read",
        found.1
    )))
}

/// The kernel's number of the mount by which a view that is being recorded reads its layers; no two ever have the same.
fn mount_of_recording(service: &Service<'_>) -> Result<u64> {
    let directory = service.lab.path("root-run/recordings");
    let mounts: Vec<_> = directory.read_dir()?.collect::<Result<_, _>>()?;
    let [mount] = &mounts[..] else {
        bail!("{} mounts in {}", mounts.len(), directory.display());
    };
    // STATX_MNT_ID_UNIQUE, Linux 6.8.
    let wanted = StatxFlags::from_bits_retain(0x4000);
    let told = statx(CWD, mount.path(), AtFlags::empty(), wanted)?;
    ensure!(
        told.stx_mask & wanted.bits() != 0,
        "the kernel does not number mounts"
    );
    Ok(told.stx_mnt_id)
}
