//! Helpers that scenarios share: how long they run, their images and roots, and their checks.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::large::Large;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::lab::{Lab, Names, wait_until};

/// Settings of the roots under load: on a machine that is this busy a registry may take its time.
const SETTINGS: &str = "[budget]\nattempts = 10\nbase_delay = \"20ms\"\nmax_delay = \"500ms\"\n\
    total_deadline = \"120s\"\nresponse_timeout = \"20s\"\nstall_window = \"20s\"\nstall_bytes = 1\n";

/// Whether the long form is asked for.
pub(crate) fn is_full() -> bool {
    std::env::var("XEBEC_SOAK").is_ok_and(|value| value == "full")
}

/// The first figure in the short form, the second in the long one.
pub(crate) fn sized<T>(short: T, full: T) -> T {
    if is_full() { full } else { short }
}

/// Puts a large image and its indexes into the registry, and the digests of its files into the file `truth`.
pub(super) fn push_large(lab: &Lab<'_>, large: &Large) -> Result<Names> {
    let files = large.files();
    let half = files.len().div_ceil(2).max(1);
    let lines: Vec<String> = std::thread::scope(|scope| {
        let line = |file: &xebec_testkit::large::LargeFile| {
            let digest = xebec_format::digest::Digest::of(&file.contents());
            format!("{} {} {}\n", digest.hex(), file.size, file.path)
        };
        let threads: Vec<_> = files
            .chunks(half)
            .map(|part| scope.spawn(move || part.iter().map(line).collect::<String>()))
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    });
    let truth = lines.concat();
    ensure!(truth.lines().count() == files.len(), "a thread died");
    fs::write(lab.path("truth"), truth).context("write what is true")?;
    let image = large.image()?;
    lab.push_indexed(&image, "large")
}

/// An image of two layers: the Go program `linger`, which reads `/file` and ends soon, and that file.
pub(super) fn container_image(program: &[u8], file: &[u8], compression: Compression) -> Result<Image> {
    let mut tar = TarBuilder::new();
    tar.directory("bin");
    tar.file_with(&Header::new("bin/linger", Kind::File).mode(0o755), program);
    let mut upper = TarBuilder::new();
    upper.file("file", file);
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .layer(&upper.into_bytes(), compression)?
        .config("Entrypoint", json!(["/bin/linger"]))
        .config("Cmd", json!(["20ms", "/file"]));
    Ok(image.build())
}

/// A root's containers, as `ps` tells of them.
pub(super) fn containers(lab: &Lab<'_>, root: &str) -> Result<Vec<Value>> {
    let ended = lab.xebec(root, &["ps", "--json"])?;
    serde_json::from_str(&ended.out).with_context(|| format!("{ended:?}"))
}

pub(super) fn no_view_is_left(lab: &Lab<'_>, root: &str, limit: Duration) -> Result<()> {
    wait_until(limit, "no view is left", || {
        let status = lab.status(root)?;
        let views = status.get("views").and_then(Value::as_array);
        Ok(views.is_some_and(Vec::is_empty))
    })
}

/// A root of that name with [`SETTINGS`], without anything in it; its readers wait as long as it takes.
pub(super) fn fresh_root(lab: &Lab<'_>, root: &str) -> Result<()> {
    let directory = lab.path(root);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("registries.toml"), SETTINGS).context("write registries.toml")?;
    fs::write(directory.join("daemon.toml"), "").context("write daemon.toml")
}

/// The end of the daemon's log, to find out why a case failed.
pub(super) fn tell_log(lab: &Lab<'_>, root: &str) {
    let log = lab.daemon_log(root).unwrap_or_default();
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains(" INFO ")).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(60)) {
        eprintln!("{line}");
    }
}
