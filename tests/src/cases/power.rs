//! The power goes while images are read, pulled and evicted: a real ext4 that stops taking writes from one moment to the
//! next, and what a reboot finds on it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_testkit::compression::Compression;

use crate::lab::{self, Lab, Names, contents, expect_contents, read_cold};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that the case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// How often the power is cut.
const ROUNDS: u64 = 6;
/// Size of the file that each image has.
const FILE: usize = 6 << 20;
/// Images under way.
const IMAGES: u64 = 3;
/// Size of the disk.
const DISK: u64 = 96 << 20;
/// Where the boot's identity is in the file `present` (docs/formats/presence.md).
const BOOT_AT: u64 = 24;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("power/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("cut-under-load", cut_under_load),
        case("damage-heals", damage_heals),
    ]
}

fn cut_under_load(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let mut images = Vec::new();
    for seed in 1..=IMAGES {
        let file = contents(seed, FILE);
        let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
        images.push(lab.push_indexed(&image, &format!("image{seed}"))?);
    }
    let mut random = fastrand::Rng::with_seed(5);
    let (mut believed, mut pages, mut lost) = (0, 0, 0);
    for round in 0..ROUNDS {
        let (before, after) = (format!("before{round}"), format!("after{round}"));
        mount_disk(&lab, &before)?;
        live_and_die(&lab, &images, &before, &mut random)?;
        // The bytes that are on the disk now: the file system below takes no more writes.
        let copy = lab.path(&format!("{after}.ext4"));
        fs::copy(lab.path(&format!("{before}.ext4")), &copy)?;
        let _ = lab.xebec(&before, &["daemon", "stop", "--force"]);
        mount_loop(&copy, &lab.path(&after))?;
        // The spans that would be wrong if `present` were believed: they show what the cut took.
        let taken = images
            .iter()
            .filter_map(|names| lab.check(&after, &names.tag).ok());
        lost += taken.map(|checked| checked.wrong).sum::<u64>();
        another_boot(&lab.path(&after).join("layers"))?;
        for names in &images {
            // One that the disk does not know of cannot be checked.
            if let Ok(checked) = lab.check(&after, &names.tag) {
                ensure!(checked.wrong == 0, "round {round}: {checked:?}");
                believed += checked.present;
                pages += checked.pages;
            }
        }
        for (names, seed) in images.iter().zip(1..) {
            let mnt = lab.mount(&after, &names.tag, &["--require-lazy"])?;
            let read = expect_contents(&mnt.join("file"), &contents(seed, FILE));
            read.with_context(|| format!("image {seed} after cut {round}"))?;
            lab.umount(&after, &mnt)?;
            let checked = lab.check(&after, &names.tag)?;
            ensure!(
                checked.wrong == 0 && checked.present == checked.pages,
                "{checked:?}"
            );
        }
        lab.stop(&after)?;
    }
    ensure!(believed > 0, "no page outlived any cut: that proves nothing");
    Ok(Outcome::Passed(format!(
        "{ROUNDS} cuts: {believed} of {pages} pages believed afterwards, 0 wrong ({lost} wrong spans if those of before \
         the cut were believed); everything right when read again"
    )))
}

/// One file of a layer or an image is torn, each in turn: the next start makes it anew, and readers get the right bytes. The layer is
/// half there, so that missing bytes have to be fetched by the files that are left.
fn damage_heals(world: &World) -> Result<Outcome> {
    const DAMAGED: [&str; 8] = [
        "index",
        "data",
        "present",
        "durable",
        "windows",
        "roots.json",
        "origins.json",
        "record",
    ];
    let lab = Lab::new(world)?;
    let (one, two) = (contents(1, FILE), contents(2, FILE));
    let image = lab::image(&[&[("one", &one), ("two", &two)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "image")?;
    for name in DAMAGED {
        let root = format!("root-{name}");
        let mnt = lab.mount(&root, &names.tag, &["--require-lazy"])?;
        expect_contents(&mnt.join("one"), &one)?;
        lab.umount(&root, &mnt)?;
        // A daemon that ends makes everything durable, so that there is something to damage.
        lab.stop(&root)?;
        let path = match name {
            "record" => fs::read_dir(lab.path(&root).join("images"))?
                .flatten()
                .next()
                .context("no record")?
                .path(),
            name => bitmaps(&lab.path(&root).join("layers"))
                .first()
                .context("no layer")?
                .with_file_name(name),
        };
        let file = File::options()
            .write(true)
            .open(&path)
            .with_context(|| name.to_owned())?;
        file.set_len(file.metadata()?.len() / 2)?;
        let mnt = lab
            .mount(&root, &names.tag, &["--require-lazy"])
            .with_context(|| format!("{name} is torn"))?;
        for (file, contents) in [("one", &one), ("two", &two)] {
            expect_contents(&mnt.join(file), contents).with_context(|| format!("{name} is torn"))?;
        }
        let checked = lab.check(&root, &names.tag)?;
        ensure!(checked.wrong == 0, "{name} is torn: {checked:?}");
        lab.umount(&root, &mnt)?;
        lab.stop(&root)?;
    }
    Ok(Outcome::Passed(format!(
        "torn one after the other, and right: {}",
        DAMAGED.join(", ")
    )))
}

/// Readers, pulls and evictions until the power goes at a random moment.
fn live_and_die(lab: &Lab<'_>, images: &[Names], root: &str, random: &mut fastrand::Rng) -> Result<()> {
    let first = images.first().context("no image")?;
    lab.xebec(root, &["pull", "--complete", &first.tag])?
        .expect(0, &[])?;
    let moment = Duration::from_millis(random.u64(300..4000));
    let seed = random.u64(..);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(seed);
            while !is_over.load(Ordering::Relaxed) {
                let target = random.u64(0..3 * FILE as u64).to_string();
                let _ = lab.xebec(root, &["cache", "gc", "--to", &target]);
            }
        });
        scope.spawn(|| {
            for names in images.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let _ = lab.xebec(root, &["pull", "--complete", &names.tag]);
            }
        });
        scope.spawn(|| {
            for names in images.iter().rev().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(mnt) = lab.mount(root, &names.tag, &[]) else {
                    continue;
                };
                let _ = read_cold(&mnt.join("file"));
                let _ = lab.umount(root, &mnt);
            }
        });
        std::thread::sleep(moment);
        // The kernel may write what it likes first. This is the worst that it could choose: what claims, before what it
        // claims.
        for present in bitmaps(&lab.path(root).join("layers")) {
            let _ = File::open(present).and_then(|file| file.sync_all());
        }
        let cut = run(Command::new(World::go_tool("cutpower")?).arg(lab.path(root)));
        is_over.store(true, Ordering::Relaxed);
        cut.map(|_| ())
    })
}

/// A new disk, mounted at the root of that name.
fn mount_disk(lab: &Lab<'_>, root: &str) -> Result<()> {
    mount_new(&lab.path(root))
}

/// A new disk with a journal, mounted there; it lies beside the directory.
pub(crate) fn mount_new(directory: &Path) -> Result<()> {
    let image = directory.with_extension("ext4");
    File::create(&image)?.set_len(DISK)?;
    run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
    mount_loop(&image, directory)
}

pub(crate) fn mount_loop(image: &Path, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    run(Command::new("mount")
        .args(["-o", "loop"])
        .args([image, directory]))
    .map(|_| ())
}

/// Makes every `present` one of another boot than this, which is all that a reboot changes about it.
pub(crate) fn another_boot(layers: &Path) -> Result<()> {
    for path in bitmaps(layers) {
        let present = File::options().write(true).open(path)?;
        // One that is shorter than its header is no bitmap, and stays none.
        if present.metadata()?.len() > BOOT_AT {
            present.write_all_at(&[0xee; 16], BOOT_AT)?;
        }
    }
    Ok(())
}

/// The files `present` of all layers.
fn bitmaps(layers: &Path) -> Vec<PathBuf> {
    let folders = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let indexes = folders(layers).flat_map(|layer| folders(&layer.path()).collect::<Vec<_>>());
    let files = indexes.map(|index| index.path().join("present"));
    files.filter(|path| path.is_file()).collect()
}
