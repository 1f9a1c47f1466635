//! Someone who may push attaches a recording with pages that are not the image's.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use xebec_format::runtime_image::{Recording, lay_out};

use super::support::{PAGE, Published, Service, expect_recorded, number, push_signed};
use crate::lab::{Names, expect_contents, read_cold, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// The file that is lied about.
const FILE: &str = "start/a";

/// A service with a recording attached to it that lies about [`FILE`].
struct Lie<'a> {
    service: Service<'a>,
    names: Names,
}

impl<'a> Lie<'a> {
    /// `names` says where the image and its index are.
    fn attach(service: Service<'a>, names: Names) -> Result<Self> {
        let lab = &service.lab;
        // A true recording to start from, in a repository that nobody reads.
        let workshop = lab.push_indexed(&service.image, "workshop")?;
        let told = service.record("workshop", &[&workshop.tag])?;
        let published = Published::new(lab, "workshop", &told)?;
        let truth = service.file(FILE)?;
        let mut pages = published.pages.clone();
        let mut changed = 0;
        for page in pages.values_mut() {
            if truth.chunks_exact(PAGE).any(|part| part == page.as_slice()) {
                *page = lie_of(&*page);
                changed += 1;
            }
        }
        ensure!(changed == truth.len() / PAGE, "{changed} pages to lie about");

        let honest = published.recording.clone();
        let mut zone = Vec::new();
        let touched = honest.services.iter().flat_map(|service| &service.touched);
        let touched: Vec<_> = touched.map(|seen| seen.run).collect();
        let laid_out = lay_out(
            &honest.layers,
            0,
            b"",
            touched,
            &mut zone,
            |layer, page, bytes| {
                // A page that is in no segment is zero.
                if let Some(known) = pages.get(&(layer, page)) {
                    bytes.copy_from_slice(known);
                } else {
                    bytes.fill(0);
                }
                Ok(())
            },
        )?;
        let lying = Recording {
            zeros: laid_out.zeros,
            zones: vec![laid_out.zone],
            segments: laid_out.segments,
            // The zone of the lies has nothing but pages.
            indexes: Vec::new(),
            ..honest
        };
        let changed = vec![(0, lying.encode()), (1, zone)];
        published.attach(lab, "workshop", &names, changed)?;
        Ok(Self { service, names })
    }

    /// Starts the service by tag, with nothing signed: it is given the lie.
    fn be_told(&self, root: &str) -> Result<()> {
        let stats = self.service.start(root, &[&self.names.tag])?;
        expect_recorded(&stats)?;
        ensure!(number(&stats, "/runtime_image/injected")? > 0, "{stats:#}");
        Ok(())
    }

    /// Asks that the mount shows the lie, or else the test tests nothing.
    fn expect_lie(&self, mnt: &Path) -> Result<()> {
        let bytes = read_cold(&mnt.join(FILE))?;
        let truth = self.service.file(FILE)?;
        ensure!(
            bytes.get(..PAGE) == truth.get(..PAGE).map(lie_of).as_deref(),
            "the lie is not shown: this test tests nothing"
        );
        Ok(())
    }

    fn expect_alarm(&self, root: &str) -> Result<String> {
        self.service.lab.logged(root, &["ALARM", "runtime image"])
    }

    /// The recording is not used any more, in this root.
    fn expect_distrust(&self, root: &str) -> Result<()> {
        for restarted in [false, true] {
            if restarted {
                self.service.lab.stop(root)?;
            }
            let stats = self.service.start(root, &[&self.names.tag])?;
            let loaded = stats.get("runtime_image");
            ensure!(
                loaded.is_none_or(Value::is_null),
                "the liar's recording is used again: {stats:#}"
            );
        }
        Ok(())
    }
}

/// The false contents in place of a page.
fn lie_of(page: impl AsRef<[u8]>) -> Vec<u8> {
    page.as_ref().iter().map(|byte| byte ^ 0x55).collect()
}

/// By tag, with nothing signed, it is believed. Bringing the rest of the image in finds it out, however that is asked for.
pub(super) fn by_tag(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let names = service.lab.push_indexed(&service.image, "app")?;
    let lie = Lie::attach(service, names)?;
    let (lab, tag) = (&lie.service.lab, &lie.names.tag);
    let mut alarms = Vec::new();
    let mount = &["mount"][..];
    let ways: [(&str, &[&str]); 4] = [
        ("pulled", &["pull", "--complete", tag]),
        ("proven", &["check", "--prove", tag]),
        ("background", mount),
        ("read", mount),
    ];
    for (root, words) in ways {
        lie.be_told(root)?;
        let mnt = lab.mount(root, tag, &[])?;
        lie.expect_lie(&mnt)?;
        match root {
            "background" => {
                lab.mount(root, tag, &["--complete"])?;
            }
            "read" => {
                // The files beside the lie, in the same span.
                expect_contents(&mnt.join("rest/big"), lie.service.file("rest/big")?)?;
                expect_contents(&mnt.join("rest/more"), lie.service.file("rest/more")?)?;
            }
            _ => {
                let ended = lab.xebec(root, words)?;
                ensure!(ended.code == 0 || ended.code == 7, "{ended:?}");
            }
        }
        wait_until(Duration::from_secs(60), "an alarm in the log", || {
            Ok(lie.expect_alarm(root).is_ok())
        })
        .with_context(|| format!("{root}: {}", lab.daemon_log(root).unwrap_or_default()))?;
        // The mount that has the lie in memory has it no more, and so it is beside it.
        let truth = lie.service.file(FILE)?;
        wait_until(Duration::from_secs(60), "the truth to be read", || {
            Ok(fs::read(mnt.join(FILE))? == truth)
        })
        .with_context(|| root.to_owned())?;
        lie.service
            .expect_truth(root, tag)
            .with_context(|| root.to_owned())?;
        lie.expect_distrust(root).with_context(|| root.to_owned())?;
        lie.service.expect_truth(root, tag)?;
        lie.service.expect_sound(root, tag)?;
        alarms.push(format!("{root}: {}", lie.expect_alarm(root)?));
    }
    Ok(Outcome::Passed(alarms.join("\n")))
}

/// Pages that were brought in under a weaker rule are compared before the first read under a stronger one.
pub(super) fn by_digest(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let key = service.lab.make_key("ours")?;
    let names = push_signed(&service, &key)?;
    let lie = Lie::attach(service, names)?;
    let lab = &lie.service.lab;
    let mut alarms = Vec::new();
    for (root, by_service, reference) in [
        ("digest", false, &lie.names.digest),
        ("digest-started", true, &lie.names.digest),
        ("tag", false, &lie.names.tag),
    ] {
        // No key is trusted here yet.
        lie.be_told(root)?;
        let held = lab.mount(root, &lie.names.tag, &[])?;
        lie.expect_lie(&held)?;
        lab.trust_key(root, "ours")?;
        if by_service {
            let stats = lie.service.start(root, &[reference])?;
            let injected = stats.pointer("/runtime_image/injected").and_then(Value::as_u64);
            ensure!(injected.unwrap_or(0) == 0, "{stats:#}");
        }
        let mnt = lab.mount(root, reference, &["--require-lazy"])?;
        alarms.push(lie.expect_alarm(root)?);
        lie.service.expect_files(&mnt).with_context(|| root.to_owned())?;
        lie.service.expect_sound(root, reference)?;
    }
    // And who trusts the key from the first never hears the lie.
    lab.trust_key("fresh", "ours")?;
    for reference in [&lie.names.tag, &lie.names.digest] {
        lie.service.start("fresh", &[reference])?;
        lie.service.expect_truth("fresh", reference)?;
    }
    ensure!(lie.expect_alarm("fresh").is_err(), "an alarm about nothing");
    Ok(Outcome::Passed(alarms.join("\n")))
}

/// A false recording is not loaded into layers with a reader that does not admit it, whichever came first.
pub(super) fn beside_the_truth(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let key = service.lab.make_key("ours")?;
    let names = push_signed(&service, &key)?;
    let lie = Lie::attach(service, names)?;
    let lab = &lie.service.lab;
    for (root, reference) in [("digest", &lie.names.digest), ("tag", &lie.names.tag)] {
        lab.trust_key(root, "ours")?;
        let mnt = lab.mount(root, reference, &["--require-lazy"])?;
        // For who starts it now, the registry's word suffices.
        lab.trust(root, "")?;
        let stats = lie.service.start(root, &[&lie.names.tag])?;
        ensure!(number(&stats, "/runtime_image/injected")? == 0, "{stats:#}");
        lie.service.expect_files(&mnt).with_context(|| root.to_owned())?;
        lab.umount(root, &mnt)?;
    }
    // With nobody beside it, it is told the lie.
    lab.trust_key("alone", "ours")?;
    let mnt = lab.mount("alone", &lie.names.digest, &["--require-lazy"])?;
    lab.umount("alone", &mnt)?;
    lab.trust("alone", "")?;
    lie.be_told("alone")?;
    Ok(Outcome::Passed(
        "nothing was brought in beside who needs more".to_owned(),
    ))
}

/// A view that has the lie in memory is not shown to others by the next worker, which did not hear the alarm.
pub(super) fn outlives_a_worker(world: &World) -> Result<Outcome> {
    worker_dies(world, false)
}

/// Also if that worker died before it could say anything.
pub(super) fn outlives_a_sudden_death(world: &World) -> Result<Outcome> {
    worker_dies(world, true)
}

fn worker_dies(world: &World, is_sudden: bool) -> Result<Outcome> {
    let service = Service::new(world)?;
    let names = service.lab.push_indexed(&service.image, "app")?;
    let lie = Lie::attach(service, names)?;
    let (lab, tag) = (&lie.service.lab, &lie.names.tag);
    lie.be_told("root")?;
    let held = lab.mount("root", tag, &[])?;
    lie.expect_lie(&held)?;
    // In memory, without being asked for anew.
    let open = std::fs::File::open(held.join(FILE))?;
    let worker = lab.pid("root", "worker_pid")?;
    if is_sudden {
        // The span that the lie is in is filled for a reader, and at once the worker dies.
        expect_contents(&held.join("rest/big"), lie.service.file("rest/big")?)?;
    } else {
        let ended = lab.xebec("root", &["check", "--prove", tag])?;
        ensure!(ended.code == 0 || ended.code == 7, "{ended:?}");
        lie.expect_alarm("root")?;
    }
    kill_process(worker, Signal::KILL)?;
    wait_until(Duration::from_secs(30), "another worker", || {
        Ok(lab.pid("root", "worker_pid").is_ok_and(|pid| pid != worker))
    })?;
    let mnt = lab.mount("root", tag, &[])?;
    // By what is in memory, if anything is.
    let shown = std::fs::read(mnt.join(FILE))?;
    let truth = lie.service.file(FILE)?;
    let place = shown.iter().zip(truth).position(|(one, other)| one != other);
    ensure!(
        shown == truth,
        "a new mount shows other contents, from byte {place:?} of {} on: {:?}; the lie would be {:?}",
        shown.len(),
        place.and_then(|place| shown.get(place..place + 8)),
        place.and_then(|place| Some(lie_of(truth.get(place..place + 8)?)))
    );
    drop(open);
    lie.expect_alarm("root")?;
    lie.expect_distrust("root")?;
    Ok(Outcome::Passed("a new mount shows the truth".to_owned()))
}

/// Nothing is believed of which it is not known any more who brought it.
pub(super) fn nobody_vouches(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let names = service.lab.push_indexed(&service.image, "app")?;
    let lie = Lie::attach(service, names)?;
    let (lab, tag) = (&lie.service.lab, &lie.names.tag);
    for (root, damage) in [("torn", Some(&b"[{"[..])), ("gone", None)] {
        lie.be_told(root)?;
        lab.stop(root)?;
        let layers = lab.path(root).join("layers");
        let mut notes = 0;
        for layer in fs::read_dir(layers)?.flatten() {
            for index in fs::read_dir(layer.path())?.flatten() {
                let note = index.path().join("injected.json");
                if !note.exists() {
                    continue;
                }
                notes += 1;
                match damage {
                    Some(damage) => fs::write(note, damage)?,
                    None => fs::remove_file(note)?,
                }
            }
        }
        ensure!(notes > 0, "nobody noted who brings pages");
        let mnt = lab.mount(root, tag, &[])?;
        // First the false pages: a read of their neighbours would correct them.
        expect_contents(&mnt.join(FILE), lie.service.file(FILE)?).with_context(|| root.to_owned())?;
        lie.service.expect_files(&mnt).with_context(|| root.to_owned())?;
        lie.service.expect_sound(root, tag)?;
    }
    Ok(Outcome::Passed("compared before anybody read it".to_owned()))
}
