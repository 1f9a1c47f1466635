//! The mounted view of an image equals what independent unpackers make of it: every path with type, mode, owner,
//! times, extended attributes, links, device numbers and contents.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::runner::{Case, Outcome};
use crate::tree;
use crate::truth::{self, Unpacker};
use crate::world::World;

/// Real images (`scripts/images`), and who can unpack each.
const REAL: &[(&str, &[Unpacker])] = &[
    ("nginx", BOTH),
    ("python", BOTH),
    ("node", BOTH),
    ("redis", BOTH),
    ("git", BOTH),
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
const BOTH: &[Unpacker] = &[Unpacker::Umoci, Unpacker::Containerd];
const ZSTD: &[Unpacker] = &[Unpacker::Containerd];

/// How many differences are shown.
const SHOWN: usize = 40;

pub(crate) fn cases() -> Vec<Case> {
    let real = REAL.iter().map(|&(name, unpackers)| Case {
        name: format!("differential/{name}"),
        limit: Duration::from_secs(300),
        run: Box::new(move |world| view_equals_unpacked(world, &World::built_image(name)?, name, unpackers)),
    });
    real.chain(REAL.iter().filter(|r| r.1.len()==2).map(|&(name, _)| Case {
        name: format!("truths/{name}"),
        limit: Duration::from_secs(300),
        run: Box::new(move |world| {
            let layout = World::built_image(name)?;
            let one = truth::unpack(world, &layout, Unpacker::Umoci)?;
            let two = truth::unpack(world, &layout, Unpacker::Containerd)?;
            let found = truth::differences(&one.tree, &two);
            found.iter().take(SHOWN).for_each(|difference| println!("  {difference}"));
            Ok(Outcome::Passed(format!("{} differences in {}", found.len(), one.tree.nodes.len())))
        }),
    })).collect()
}

fn view_equals_unpacked(world: &World, layout: &Path, name: &str, unpackers: &[Unpacker]) -> Result<Outcome> {
    let mounted = world.mount(layout, name)?;
    let view = tree::read(&mounted.directory)?;
    let mut wrong = 0;
    for &unpacker in unpackers {
        let truth = truth::unpack(world, layout, unpacker)?;
        let found = truth::differences(&view, &truth);
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
    let (files, megabytes) = (view.nodes.len(), view.bytes / 1_000_000);
    Ok(Outcome::Passed(format!(
        "{files} paths and {megabytes} MB equal to {unpackers:?}"
    )))
}
