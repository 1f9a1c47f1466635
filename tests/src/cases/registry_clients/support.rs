//! Checks after a client's work: what the registry has, and what it was sent.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cases::registry::said;
use crate::lab::wait_until;
use crate::registry::OwnRegistry;
use crate::world::{World, run};

/// Tags of a repository, by the API itself; nothing if it has gone.
pub(super) fn tags(registry: &OwnRegistry, repository: &str) -> Result<Vec<String>> {
    let address = format!("http://{}/v2/{repository}/tags/list", registry.address);
    let told: serde_json::Value = serde_json::from_str(&said(Command::new("curl").args(["-sS", &address]))?)?;
    let tags = told["tags"].as_array().into_iter().flatten();
    Ok(tags.filter_map(|tag| Some(tag.as_str()?.to_owned())).collect())
}

/// The digest of a tag's manifest.
pub(super) fn digest(registry: &OwnRegistry, name: &str) -> Result<String> {
    said(Command::new("skopeo").args([
        "inspect",
        "--tls-verify=false",
        "--no-tags",
        "--format",
        "{{.Digest}}",
        &format!("docker://{}/{name}", registry.address),
    ]))
}

/// Whether a repository has a manifest of this digest.
pub(super) fn has_manifest(registry: &OwnRegistry, repository: &str, digest: &str) -> Result<bool> {
    let address = format!("http://{}/v2/{repository}/manifests/{digest}", registry.address);
    let code = ["-sS", "--output", "/dev/null", "--write-out", "%{http_code}"];
    match said(Command::new("curl").args(code).arg(&address))?.as_str() {
        "200" => Ok(true),
        "404" => Ok(false),
        other => bail!("{address}: {other}"),
    }
}

/// Every blob of an image can be pulled, whatever else there is of it on this host.
pub(super) fn ensure_whole(world: &World, registry: &OwnRegistry, name: &str) -> Result<()> {
    let fresh = world.path("fresh");
    run(Command::new("skopeo").args([
        "copy",
        "--quiet",
        "--src-tls-verify=false",
        &format!("docker://{}/{name}", registry.address),
        &format!("oci:{}:fresh", fresh.display()),
    ]))?;
    Ok(fs::remove_dir_all(fresh)?)
}

/// The digest of a tag's index artifact, if it has one.
pub(super) fn index_artifact(registry: &OwnRegistry, name: &str) -> Result<Option<String>> {
    let (repository, _) = name.split_once(':').context("no tag")?;
    let address = format!(
        "http://{}/v2/{repository}/referrers/{}",
        registry.address,
        digest(registry, name)?
    );
    let told: serde_json::Value = serde_json::from_str(&said(Command::new("curl").args(["-sS", &address]))?)?;
    let mut referrers = told["manifests"].as_array().into_iter().flatten();
    let index = referrers.find(|referrer| referrer["artifactType"] == "application/vnd.xebec.index.v1");
    Ok(index.and_then(|index| Some(index["digest"].as_str()?.to_owned())))
}

/// How many blobs a repository was given from another one without being sent. The log of a request follows its answer.
pub(super) fn ensure_mounted(registry: &OwnRegistry, repository: &str) -> Result<()> {
    let begin = format!("method=POST path=/v2/{repository}/blobs/uploads/ status=201");
    wait_until(Duration::from_secs(60), "a blob was mounted", || {
        Ok(registry.log().contains(&begin))
    })
    .with_context(|| registry.log())
}

/// How many bytes of a repository's blobs clients were sent.
pub(super) fn sent(registry: &OwnRegistry, repository: &str) -> u64 {
    let path = format!("method=GET path=/v2/{repository}/blobs/");
    let of_line = |line: &str| {
        line.split_once(" sent=")?
            .1
            .split(' ')
            .next()?
            .parse::<u64>()
            .ok()
    };
    let log = registry.log();
    log.lines()
        .filter(|line| line.contains(&path))
        .filter_map(of_line)
        .sum()
}
