//! Images of many layers, lazy, and lazy below unpacked ones: the uppermost file wins, and what a layer removes is gone,
//! wherever the border between them lies.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::cases::soak::support::is_full;
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::Lab;
use crate::runner::Outcome;
use crate::world::{World, run};

/// Longest that the case may take, on a busy machine: containerd unpacks several hundred layers one after the other.
pub(super) const LIMIT: Duration = Duration::from_secs(600);
/// Layers, and how many of them, the lowest, are lazy. The last has more directories than fit into the options of a mount
/// (one page) by their whole names; `make soak ONLY=containerd/layers` has as many as overlayfs takes.
const IMAGES: [(usize, usize); 4] = [(1, 1), (500, 500), (130, 65), (160, 20)];
/// The last one of a soak: containerd takes three minutes to unpack it.
const MOST: (usize, usize) = (500, 20);
/// A layer removes the own file of the one that is so far below it.
const REMOVES: usize = 5;
/// Files that layers overwrite in turn.
const SHARED: usize = 7;

/// Pulls, starts and looks at one image after the other.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let lab = Lab::new(world)?;
    let program = fs::read(World::go_tool("linger")?)?;
    let mut told = Vec::new();
    let mut images = IMAGES.to_vec();
    images.extend(is_full().then_some(MOST));
    for (layers, lazy) in images {
        let begin = Instant::now();
        let name = format!("image{layers}-{lazy}");
        let reference = lab.push(&image(&program, layers, lazy)?, &name).tag;
        // This host knows the lower layers of another image, and nobody knows the others.
        let lower = lab
            .push(&image(&program, lazy, lazy)?, &format!("{name}-lower"))
            .tag;
        run(&mut world.xebec(&["index", &lower]))?;
        containerd.does(&["images", "pull", "--plain-http", &reference])?;
        let is_layer = |path: &PathBuf| path.parent().is_some_and(|parent| parent.ends_with("w"));
        let directories = snapshots
            .directories()?
            .iter()
            .filter(|path| is_layer(path))
            .count();
        ensure!(
            directories == layers - lazy,
            "{directories} directories for {layers} layers, of which {lazy} can be lazy"
        );
        containerd.does(&["run", "--detach", "--net-host", &reference, &name])?;
        let found = read(&containerd, &name)?;
        let wanted = expected(layers, lazy);
        ensure!(
            found == wanted,
            "{layers} layers, {lazy} lazy: {found:?} in place of {wanted:?}"
        );
        containerd.end(&name)?;
        containerd.does(&["containers", "rm", &name])?;
        containerd.does(&["images", "rm", "--sync", &reference])?;
        containerd.collect()?;
        snapshots.has_only(&[])?;
        told.push(format!(
            "{layers} ({lazy} lazy) in {:.1} s",
            begin.elapsed().as_secs_f32()
        ));
    }
    Ok(Outcome::Passed(told.join(", ")))
}

/// The file that layers overwrite in turn.
fn shared(layer: usize) -> String {
    format!("shared{}", layer % SHARED)
}

fn own(layer: usize) -> String {
    format!("own{layer}")
}

/// Each layer adds a file, overwrites one, and removes one; the first above the lazy ones replaces a directory.
fn image(program: &[u8], layers: usize, lazy: usize) -> Result<Image> {
    let mut image = ImageBuilder::new();
    for layer in 0..layers {
        let mut tar = TarBuilder::new();
        if layer == 0 {
            tar.file_with(&Header::new("linger", Kind::File).mode(0o755), program);
            tar.directory("dir").file("dir/old", "old");
        }
        if layer == lazy {
            tar.directory("dir").opaque("dir").file("dir/new", "new");
        }
        tar.file(own(layer), layer.to_string());
        tar.file(shared(layer), layer.to_string());
        if let Some(below) = layer.checked_sub(REMOVES) {
            tar.whiteout(&own(below));
        }
        image = image.layer(&tar.into_bytes(), Compression::Gzip(1))?;
    }
    Ok(image.config("Entrypoint", json!(["/linger", "1h"])).build())
}

/// The files that there must be, and what they hold.
fn expected(layers: usize, lazy: usize) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for layer in 0..layers {
        files.insert(shared(layer), layer.to_string());
        if layer + REMOVES >= layers {
            files.insert(own(layer), layer.to_string());
        }
    }
    let name = if lazy < layers { "new" } else { "old" };
    files.insert(format!("dir/{name}"), name.to_owned());
    files
}

/// Those that a container has.
fn read(containerd: &Containerd<'_>, name: &str) -> Result<BTreeMap<String, String>> {
    let root = containerd.root_of(name);
    let mut files = BTreeMap::new();
    for directory in ["", "dir/"] {
        for entry in fs::read_dir(root.join(directory))? {
            let name = directory.to_owned() + entry?.file_name().to_str().context("a name")?;
            if ["own", "shared", "dir/"]
                .iter()
                .any(|begin| name.starts_with(begin))
            {
                let text = fs::read_to_string(root.join(&name)).with_context(|| name.clone())?;
                files.insert(name, text);
            }
        }
    }
    Ok(files)
}
