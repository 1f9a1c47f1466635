//! A small image of somebody cannot make the worker, whose memory is locked, hold as much as it likes; others start beside it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Entry, EntryKind, LayerIndex, Metadata};
use xebec_format::path::LayerPath;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Blob, Image, ImageBuilder};
use xebec_testkit::tar::TarBuilder;

use crate::lab::{self, Lab, Names, contents, expect_contents};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// As many layers as a manifest may list.
const MOST_LAYERS: usize = 4096;
/// Files of a layer that is listed that often: 3,000 files take 2 MB, and 4,096 times as many would take 8 GB.
const FILES: usize = 3000;
/// How many layers have an index that decodes to much, and how many entries each has: 24 times 130 MB.
const LARGE: (usize, usize) = (24, 200_000);
/// Most memory that the worker may come to hold by refusing an image, in KiB. The limit of one image is 2 GiB, of which a quarter is
/// what merging would take; a worker that holds nothing takes 40 MiB.
const REFUSED: u64 = 1800 << 10;
/// The same where the limit shows before anything is decoded twice.
const REPEATED: u64 = 400 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("budget/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("repeated-layer", repeated_layer),
        case("repeated-often", repeated_often),
        case("large-indexes", large_indexes),
    ]
}

/// The most memory that a root's worker ever held, in KiB.
fn most_held(lab: &Lab<'_>, root: &str) -> Result<u64> {
    let pid = lab.pid(root, "worker_pid")?.as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("no VmHWM")
}

/// Another image, mounted before what is tried and after it.
fn mount_another(lab: &Lab<'_>, repository: &str) -> Result<()> {
    let file = contents(7, 300_000);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, repository)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &file)
}

/// An image that lists the same layer so often, whose index the root knows.
fn repeated(lab: &Lab<'_>, files: usize, times: usize) -> Result<Names> {
    let mut tar = TarBuilder::new();
    tar.directory("d");
    for number in 0..files {
        tar.file(format!("d/file{number}"), format!("{number}").as_bytes());
    }
    let plain = tar.into_bytes();
    let once = ImageBuilder::new().layer(&plain, Compression::Gzip(1))?.build();
    let names = lab.push_indexed(&once, "app")?;
    lab.xebec("root", &["pull", &names.tag])?.expect(0, &[])?;
    let layer = once.layers.first().context("no layer")?;
    let mut builder = ImageBuilder::new();
    for _ in 0..times {
        builder = builder.blob(layer.clone(), Digest::of(&plain));
    }
    Ok(lab.push(&builder.build(), "app"))
}

fn expect_refused(lab: &Lab<'_>, names: &Names, most: u64) -> Result<String> {
    let begun = Instant::now();
    let ended = lab.try_mount("root", &names.tag, &["--require-lazy"])?;
    let took = begun.elapsed();
    let held = most_held(lab, "root")?;
    ensure!(held < most, "the worker came to hold {} MiB", held >> 10);
    ended.expect(125, &[&names.tag, "refused", "MiB", "limit"])?;
    mount_another(lab, "after")?;
    Ok(format!("{} MiB at most, refused in {took:?}", held >> 10))
}

/// An image that lists one layer with some files as often as a manifest can is refused, and its index is decoded once.
fn repeated_layer(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    mount_another(&lab, "before")?;
    let names = repeated(&lab, FILES, MOST_LAYERS)?;
    Ok(Outcome::Passed(expect_refused(&lab, &names, REPEATED)?))
}

/// One that lists a small layer as often as images have layers starts, and shows it.
fn repeated_often(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = repeated(&lab, 100, 127)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    for number in [0, 50, 99] {
        expect_contents(
            &mnt.join(format!("d/file{number}")),
            format!("{number}").as_bytes(),
        )?;
    }
    let held = most_held(&lab, "root")?;
    Ok(Outcome::Passed(format!("{} MiB at most", held >> 10)))
}

/// Layers of a few bytes whose indexes, of a few kilobytes, decode to hundreds of megabytes each.
fn large_indexes(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    mount_another(&lab, "before")?;
    let (layers, entries) = LARGE;
    let parent = "d".repeat(200);
    let mut index = LayerIndex {
        layer: Digest::of(b""),
        layer_size: 0,
        diff_id: None,
        codec: Codec::Tar,
        plain_size: 0,
        data_size: 0,
        entries: Vec::new(),
        pieces: Vec::new(),
        spans: Vec::new(),
        windows: None,
        frame: None,
        contents: None,
    };
    for number in 0..entries {
        index.entries.push(Entry {
            path: LayerPath::normalize(format!("{parent}/{number:08}").as_bytes())?,
            metadata: Metadata::default(),
            kind: EntryKind::File {
                size: 0,
                extents: Vec::new(),
            },
        });
    }
    let blobs: Vec<Blob> = (0..layers)
        .map(|number| {
            Blob::new(
                format!("layer {number}").into_bytes(),
                Compression::Tar.media_type(),
            )
        })
        .collect();
    let mut builder = ImageBuilder::new();
    let mut indexes = Vec::new();
    for blob in &blobs {
        builder = builder.blob(blob.clone(), blob.digest);
        index.layer = blob.digest;
        index.layer_size = blob.bytes.len() as u64;
        index.diff_id = Some(blob.digest);
        indexes.push((blob.digest, index.encode()));
    }
    drop(index);
    let image = builder.build();
    let names = lab.push(&image, "app");
    let size: usize = indexes.iter().map(|(_, bytes)| bytes.len()).sum();
    attach(&lab, &image, indexes)?;
    let said = expect_refused(&lab, &names, REFUSED)?;
    Ok(Outcome::Passed(format!("{} KiB of indexes: {said}", size >> 10)))
}

/// Attaches indexes to an image, as `index --push` does.
fn attach(lab: &Lab<'_>, image: &Image, indexes: Vec<(Digest, Vec<u8>)>) -> Result<()> {
    let mut layers = Vec::new();
    for (layer, bytes) in indexes {
        layers.push(json!({
            "mediaType": "application/vnd.xebec.layer.index.v1",
            "digest": Digest::of(&bytes), "size": bytes.len(),
            "annotations": {"dev.xebec.layer": layer},
        }));
        lab.registry.put_blob("app", bytes);
    }
    let empty = b"{}";
    lab.registry.put_blob("app", &empty[..]);
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let artifact = json!({
        "schemaVersion": 2, "mediaType": media_type,
        "artifactType": "application/vnd.xebec.index.v1",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json",
                   "digest": Digest::of(empty), "size": empty.len()},
        "layers": layers,
        "subject": {"mediaType": image.manifest.media_type, "digest": image.manifest.digest,
                    "size": image.manifest.bytes.len()},
    });
    let bytes = serde_json::to_vec(&artifact)?;
    let digest = Digest::of(&bytes).to_string();
    lab.registry.put_manifest("app", &digest, media_type, bytes);
    Ok(())
}
