//! Docker's commands on lazy images: those that need nothing whole, those that need blobs, and those when there is nobody to
//! get blobs from.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xebec_format::digest::Digest;
use xebec_testkit::registry::FaultyRegistry;

use super::host::{Host, LARGE};
use crate::lab::contents;
use crate::runner::Outcome;
use crate::world::{World, run};

/// Prints the digest of the large file.
const SUM: [&str; 2] = ["sha256sum", "/large"];

impl Host<'_> {
    /// Whether an image's large file is right.
    fn is_right(&self, image: &str) -> Result<()> {
        let run = ["run", "--rm", "--network", "host", image];
        let sum = self.docker.does(&[&run[..], &SUM].concat())?;
        let wanted = Digest::of(&self.large).to_string();
        let wanted = wanted.trim_start_matches("sha256:");
        ensure!(sum.starts_with(wanted), "{image}: {sum}");
        Ok(())
    }

    /// A container's changes as an image of that name.
    fn commit(&self, name: &str) -> Result<()> {
        self.waits("changed", &self.names.tag, &[])?;
        self.docker
            .does(&["exec", "changed", "sh", "-c", "echo mine > /kept"])?;
        self.docker.does(&["commit", "changed", name])?;
        self.docker.does(&["rm", "--force", "changed"])?;
        Ok(())
    }

    /// Whether a client that asks for a layer by its digest gets it, and only in the namespace that has the image.
    fn is_asked_by_digest(&self) -> Result<()> {
        let layer = self.image.layers.get(1).context("no upper layer")?;
        let digest = layer.digest.to_string();
        let get = |namespace: &str| -> Result<std::process::Output> {
            let mut ctr = Command::new(World::tool("ctr")?);
            ctr.arg("--address").arg(self.relay.at());
            Ok(ctr
                .args(["--namespace", namespace, "content", "get", &digest])
                .output()?)
        };
        let before = self.relay.fetched()?;
        let stranger = get("stranger")?;
        ensure!(
            !stranger.status.success() && stranger.stdout.is_empty(),
            "another namespace got it"
        );
        ensure!(
            self.relay.fetched()? == before,
            "it was fetched for another namespace"
        );
        let own = get(self.containerd.namespace())?;
        ensure!(
            own.stdout == layer.bytes,
            "{}",
            String::from_utf8_lossy(&own.stderr)
        );
        ensure!(self.relay.fetched()? == before + 1, "it was not fetched once");
        Ok(())
    }

    /// Has containerd collect what nothing refers to. (Its own helper of that name would take the references, too.)
    fn collect(&self) -> Result<()> {
        self.containerd.does(&["leases", "create", "--id", "none"])?;
        self.containerd.does(&["leases", "delete", "--sync", "none"])?;
        Ok(())
    }

    /// Whether an archive, or a registry, has the layers that the image has, all of them readable.
    fn has_layers(&self, place: &str, beside: usize) -> Result<()> {
        let layout = self.lab.path("copied");
        let _ = fs::remove_dir_all(&layout);
        run(Command::new("skopeo")
            .args(["copy", "--quiet", "--src-tls-verify=false", place])
            .arg(format!("oci:{}:copied", layout.display())))
        .with_context(|| place.to_owned())?;
        let blobs = layout.join("blobs/sha256");
        for layer in &self.image.layers {
            let name = layer.digest.to_string();
            let name = name.trim_start_matches("sha256:");
            let is_there = fs::read(blobs.join(name)).is_ok_and(|bytes| bytes == layer.bytes);
            ensure!(is_there, "{place}: no layer {name}");
        }
        let found = fs::read_dir(&blobs)?.count();
        // A manifest and a configuration.
        let wanted = self.image.layers.len() + beside + 2;
        ensure!(found == wanted, "{place}: {found} blobs instead of {wanted}");
        Ok(())
    }
}

/// Commands that read what they need, and no more.
pub(super) fn usual(world: &World) -> Result<Outcome> {
    let host = Host::start(world, false)?;
    let docker = &host.docker;
    let tag = &*host.names.tag;
    host.pull()?;
    host.waits("web", tag, &[])?;
    docker.does(&["exec", "web", "sh", "-c", "echo mine > /kept"])?;
    ensure!(
        docker.does(&["exec", "web", "cat", "/kept"])? == "mine",
        "no exec"
    );
    ensure!(docker.does(&["logs", "web"])?.contains("began"), "no logs");
    let changes = docker.does(&["diff", "web"])?;
    ensure!(changes == "A /kept", "diff: {changes}");
    let listed = docker.does(&["images", "--format", "{{.Repository}} {{.Size}}"])?;
    docker.does(&["system", "df"])?;
    docker.does(&["inspect", tag])?;
    docker.does(&["history", tag])?;
    host.is_lazy("exec, diff, images, df, inspect or history")?;
    let kept = format!("{}/team/kept:1", host.lab.registry.host());
    // containerd compares the files of the image with the container's, so they are read; no blob is.
    host.commit(&kept)?;
    ensure!(host.relay.fetched()? == 0, "a blob was fetched for a commit");
    let read = docker.does(&["run", "--rm", "--network", "host", &kept, "cat", "/kept"])?;
    ensure!(read == "mine", "committed: {read}");

    let copied = world.path("large");
    docker.does(&["cp", "web:/large", copied.to_str().context("an odd path")?])?;
    ensure!(fs::read(&copied)? == host.large, "cp: other bytes");
    let context = world.path("context");
    fs::create_dir_all(&context)?;
    fs::write(
        context.join("Dockerfile"),
        format!("FROM {tag}\nRUN echo built > /built\nCOPY Dockerfile /\n"),
    )?;
    let place = context.to_str().context("an odd path")?;
    docker.does(&["build", "--network", "host", "--tag", "built:1", place])?;
    let read = docker.does(&["run", "--rm", "--network", "host", "built:1", "cat", "/built"])?;
    ensure!(read == "built", "built: {read}");
    let kit = ["build", "--network", "host", "--tag", "kit:1", place];
    let mut kit = docker.client(&kit)?;
    run(kit.env("DOCKER_BUILDKIT", "1"))?;
    let read = docker.does(&["run", "--rm", "--network", "host", "kit:1", "cat", "/built"])?;
    ensure!(read == "built", "built by BuildKit: {read}");
    docker.does(&["rm", "--force", "web"])?;
    for image in ["built:1", "kit:1", &kept, tag] {
        docker.does(&["rmi", image])?;
    }
    docker.does(&["system", "prune", "--all", "--force"])?;
    docker.does(&["builder", "prune", "--all", "--force"])?;
    let left = docker.does(&["images", "--all", "--quiet"])?;
    ensure!(left.is_empty(), "images are left: {left}");
    host.containerd.collect()?;
    host.snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!("sizes: {}", listed.replace('\n', ", "))))
}

/// Commands that need blobs: they come when they are asked for, and only then.
pub(super) fn blobs(world: &World) -> Result<Outcome> {
    let host = Host::start(world, false)?;
    let docker = &host.docker;
    let tag = &*host.names.tag;
    host.pull()?;
    let kept = format!("{}/team/kept:1", host.lab.registry.host());
    host.commit(&kept)?;
    // The registry of the image has its layers.
    docker.does(&["push", &kept])?;
    let fetched = host.relay.fetched()?;
    ensure!(
        fetched == 0,
        "{fetched} blobs were fetched for a push to the registry of the image"
    );
    host.has_layers(&format!("docker://{kept}"), 1)?;

    let other = FaultyRegistry::start()?;
    let elsewhere = format!("{}/copy/kept:1", other.host());
    docker.does(&["tag", &kept, &elsewhere])?;
    // Nothing is left of the image but what was made of it.
    docker.does(&["rmi", tag])?;
    host.collect()?;
    docker.does(&["push", &elsewhere])?;
    host.has_layers(&format!("docker://{elsewhere}"), 1)?;
    let fetched = host.relay.fetched()?;
    ensure!(fetched == host.image.layers.len(), "{fetched} blobs were fetched");
    docker.does(&["rmi", &kept, &elsewhere])?;
    host.collect()?;

    host.pull()?;
    host.is_asked_by_digest()?;
    let archive = world.path("saved.tar");
    let archive = archive.to_str().context("an odd path")?;
    docker.does(&["save", "--output", archive, tag])?;
    host.has_layers(&format!("docker-archive:{archive}"), 0)
        .or_else(|_| host.has_layers(&format!("oci-archive:{archive}"), 0))?;
    let copy = format!("{}/copy/shell:1", other.host());
    docker.does(&["tag", tag, &copy])?;
    docker.does(&["push", &copy])?;
    host.has_layers(&format!("docker://{copy}"), 0)?;
    docker.does(&["rmi", tag, &copy])?;
    host.collect()?;
    host.lab.registry.set_down(true);
    docker.does(&["load", "--input", archive])?;
    host.is_right(tag)?;
    host.lab.registry.set_down(false);
    Ok(Outcome::Passed(
        "pushed, committed and pushed, saved and loaded".to_owned(),
    ))
}

/// Docker leases what it has of an image before it pulls it anew, with the calls by which it says what it is about to save. That
/// brings no blob, and it does not matter whether the registry has them any more.
pub(super) fn pulled_again(world: &World) -> Result<Outcome> {
    let host = Host::start(world, false)?;
    let docker = &host.docker;
    let tag = &*host.names.tag;
    host.pull()?;
    let said = docker.does(&["pull", tag])?;
    ensure!(said.contains("up to date"), "{said}");
    let again = [
        "run",
        "--rm",
        "--pull",
        "always",
        "--network",
        "host",
        tag,
        "cat",
        "/etc/passwd",
    ];
    docker.does(&again)?;
    host.is_lazy("a second pull")?;
    let old: Vec<_> = host.image.layers.iter().map(|layer| layer.digest).collect();
    let other = super::host::shell(&contents(8, LARGE))?;
    host.lab.push_indexed(&other, &host.names.repository)?;
    for layer in old
        .iter()
        .filter(|old| other.layers.iter().all(|new| new.digest != **old))
    {
        host.lab.registry.remove_blob(&host.names.repository, layer);
    }
    let said = docker.does(&["pull", tag])?;
    ensure!(said.contains("newer image"), "{said}");
    let fetched = host.relay.fetched()?;
    ensure!(fetched == 0, "{fetched} blobs were fetched for pulls");
    Ok(Outcome::Passed(
        "pulled again, and anew after the tag had moved".to_owned(),
    ))
}

/// The registry is away: what is here goes on, what needs blobs says what is missing, at once, and nothing is left out.
pub(super) fn dead_registry(world: &World) -> Result<Outcome> {
    let host = Host::start(world, false)?;
    let docker = &host.docker;
    let tag = &*host.names.tag;
    host.pull()?;
    let other = FaultyRegistry::start()?;
    let copy = format!("{}/copy/shell:1", other.host());
    docker.does(&["tag", tag, &copy])?;
    host.waits("web", tag, &[])?;
    host.lab.registry.set_down(true);
    docker.does(&["exec", "web", "cat", "/etc/passwd"])?;
    docker.does(&["images"])?;
    let archive = world.path("saved.tar");
    let archive = archive.to_str().context("an odd path")?;
    for needs in [&["save", "--output", archive, tag][..], &["push", &copy]] {
        let begun = std::time::Instant::now();
        let said = docker.refuses(needs)?;
        let named = said.contains("pulled lazily") && said.contains(host.lab.registry.host().as_str());
        ensure!(named, "{needs:?}: {said}");
        ensure!(
            begun.elapsed().as_secs() < 60,
            "{needs:?} took {:?}",
            begun.elapsed()
        );
    }
    ensure!(
        !fs::exists(archive)?,
        "there is an archive of what cannot be saved"
    );
    host.lab.registry.set_down(false);
    // Other bytes than the digest says.
    let layer = host.image.layers.get(1).context("no upper layer")?;
    let mut wrong = layer.bytes.to_vec();
    wrong.reverse();
    host.lab
        .registry
        .put_blob_as(&host.names.repository, layer.digest, wrong);
    let said = docker.refuses(&["save", "--output", archive, tag])?;
    ensure!(said.contains("pulled lazily"), "{said}");
    ensure!(!fs::exists(archive)?, "wrong bytes were saved");
    host.lab
        .registry
        .put_blob_as(&host.names.repository, layer.digest, layer.bytes.clone());
    docker.does(&["save", "--output", archive, tag])?;
    docker.does(&["push", &copy])?;
    host.has_layers(&format!("docker://{copy}"), 0)?;
    Ok(Outcome::Passed(
        "refused with the cause, and done later".to_owned(),
    ))
}
