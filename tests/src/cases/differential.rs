//! The mounted view of an image equals what independent unpackers make of it: every path with type, mode, owner,
//! times, extended attributes, links, device numbers and contents.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_format::digest::Digest;
use xebec_testkit::odd::{self, Unpacker};

use crate::reference_unpackers;
use crate::runner::{Case, Outcome};
use crate::tree;
use crate::world::World;

/// Real images (`scripts/images`), and who can unpack each.
const REAL: &[(&str, &[Unpacker])] = &[
    ("nginx", BOTH),
    ("node", BOTH),
    ("privileged", BOTH),
    ("purged", BOTH),
    ("locales", BOTH),
    ("repacked", BOTH),
    ("deep", BOTH),
    ("tar-writers", BOTH),
    ("squashed", BOTH),
    ("pigz", BOTH),
    ("schema2", BOTH),
    ("estargz", BOTH),
    ("zstd-frames", ZSTD),
    ("zstd-one-frame", ZSTD),
    ("zstd-chunked", ZSTD),
];
/// More of the same kinds, in the full form of the soak tests.
const MORE: &[(&str, &[Unpacker])] = &[("python", BOTH), ("redis", BOTH), ("git", BOTH)];
const BOTH: &[Unpacker] = &[Unpacker::Umoci, Unpacker::Containerd];
const ZSTD: &[Unpacker] = &[Unpacker::Containerd];

/// Longest that one image may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);

/// How many differences are shown.
const SHOWN: usize = 40;

pub(crate) fn cases() -> Vec<Case> {
    let more = super::soak::support::sized(&[][..], MORE);
    let real = REAL.iter().chain(more).map(|&(name, unpackers)| Case {
        name: format!("differential/{name}"),
        limit: LIMIT,
        run: Box::new(move |world| compare(world, &World::built_image(name)?, name, unpackers)),
    });
    let generated = odd::all()
        .into_iter()
        .filter(|odd| !odd.unpackers.is_empty())
        .map(|odd| Case {
            name: format!("differential/odd-{}", odd.name),
            limit: LIMIT,
            run: Box::new(move |world| {
                let layout = world.path("layout");
                (odd.make)()?.write_layout(&layout, "latest")?;
                compare(world, &layout, odd.name, odd.unpackers)
            }),
        });
    let long_paths = Case {
        name: "differential/long-paths".to_owned(),
        limit: LIMIT,
        run: Box::new(long_paths),
    };
    real.chain(generated).chain([long_paths]).collect()
}

/// Nobody else unpacks paths that one system call cannot name, so the view is compared with what was meant.
fn long_paths(world: &World) -> Result<Outcome> {
    let odd = odd::all().into_iter().find(|odd| odd.name == "long-paths");
    let layout = world.path("layout");
    (odd.context("not in the catalogue")?.make)()?.write_layout(&layout, "latest")?;
    let mounted = world.mount(&layout, "test/long-paths")?;
    let view = tree::read(&mounted.directory)?;
    mounted.umount()?;
    let (path, file) = view
        .nodes
        .iter()
        .find(|(path, _)| path.ends_with(b"/file"))
        .context("no file")?;
    ensure!(path.len() > 7500, "a path of {} bytes", path.len());
    ensure!(
        file.contents == Some(Digest::of(b"at the end of 7,500 bytes")),
        "wrong contents"
    );
    ensure!(view.nodes.len() == 43, "{} paths", view.nodes.len());
    Ok(Outcome::Passed(format!(
        "a file at a path of {} bytes",
        path.len()
    )))
}

/// Compares the view of an image with what each of `unpackers` makes of it.
fn compare(world: &World, layout: &Path, name: &str, unpackers: &[Unpacker]) -> Result<Outcome> {
    let mounted = world.mount(layout, &format!("test/{name}"))?;
    let view = tree::read(&mounted.directory)?;
    let mut wrong = 0;
    for &unpacker in unpackers {
        let truth = reference_unpackers::unpack(world, layout, unpacker)?;
        let found = reference_unpackers::differences(&view, &truth, unpacker);
        wrong += found.len();
        if !found.is_empty() {
            eprintln!("{} differences, view / {unpacker:?}:", found.len());
        }
        found
            .iter()
            .take(SHOWN)
            .for_each(|difference| eprintln!("  {difference}"));
    }
    mounted.umount()?;
    ensure!(
        wrong == 0,
        "the view of {name} differs from an independent unpack"
    );
    let (paths, megabytes) = (view.nodes.len(), view.bytes as f64 / 1e6);
    Ok(Outcome::Passed(format!(
        "{paths} paths and {megabytes:.1} MB equal to what {unpackers:?} made"
    )))
}
