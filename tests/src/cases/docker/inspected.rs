//! The settings of a container, by `docker inspect` and by `xebec inspect`: the same words make the same settings.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::host::Host;
use crate::runner::Outcome;
use crate::world::World;

/// The fields that are compared. Only its host knows where a volume is, and docker names what it made of an image.
const FIELDS: [&str; 33] = [
    "/Config/Hostname",
    "/Config/Tty",
    "/Config/OpenStdin",
    "/Config/Env",
    "/Config/Cmd",
    "/Config/Entrypoint",
    "/Config/User",
    "/Config/WorkingDir",
    "/Config/Labels",
    "/Config/ExposedPorts",
    "/HostConfig/RestartPolicy",
    "/HostConfig/AutoRemove",
    "/HostConfig/Binds",
    "/HostConfig/Tmpfs",
    "/HostConfig/NetworkMode",
    "/HostConfig/PortBindings",
    "/HostConfig/PublishAllPorts",
    "/HostConfig/PidMode",
    "/HostConfig/IpcMode",
    "/HostConfig/Init",
    "/HostConfig/ReadonlyRootfs",
    "/HostConfig/CapAdd",
    "/HostConfig/CapDrop",
    "/HostConfig/GroupAdd",
    "/HostConfig/Memory",
    "/HostConfig/MemoryReservation",
    "/HostConfig/MemorySwap",
    "/HostConfig/NanoCpus",
    "/HostConfig/CpuShares",
    "/HostConfig/CpusetCpus",
    "/HostConfig/PidsLimit",
    "/HostConfig/ShmSize",
    "/HostConfig/OomScoreAdj",
];

/// The first of what a command inspects.
fn first(text: &str) -> Result<Value> {
    let all: Vec<Value> = serde_json::from_str(text).with_context(|| text.to_owned())?;
    all.into_iter().next().context("nothing is shown")
}

/// A field; of binds, whose order docker's client leaves to chance, in an order.
fn at(shown: &Value, field: &str) -> Option<Value> {
    let mut value = shown.pointer(field).cloned();
    if field == "/HostConfig/Binds"
        && let Some(binds) = value.as_mut().and_then(Value::as_array_mut)
    {
        binds.sort_by_key(Value::to_string);
    }
    value
}

/// The mounts in the order of their places, without where volumes are.
fn mounts(shown: &Value) -> Vec<Value> {
    let mut mounts = shown["Mounts"].as_array().cloned().unwrap_or_default();
    mounts.sort_by_key(|mount| mount["Destination"].to_string());
    for mount in &mut mounts {
        if mount["Type"] == "volume"
            && let Some(mount) = mount.as_object_mut()
        {
            mount.remove("Source");
        }
    }
    mounts
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let host = Host::start(world, false)?;
    let site = world.path("site");
    fs::create_dir(&site)?;
    let bind = format!("{}:/site:ro", site.display());
    let full = [
        "-e",
        "A=1",
        "-w",
        "/work",
        "-u",
        "7:8",
        "-v",
        &bind,
        "-v",
        "data:/data",
        "--tmpfs",
        "/scratch:size=1m",
        "--mount",
        "type=tmpfs,target=/memory",
        "--memory",
        "64m",
        "--cpus",
        "0.5",
        "--pids-limit",
        "50",
        "--cap-drop",
        "ALL",
        "--cap-add",
        "CHOWN",
        "--cap-add",
        "NET_RAW",
        "--group-add",
        "9",
        "--read-only",
        "--restart",
        "on-failure:3",
        "--label",
        "a=b",
        "--cpu-shares",
        "512",
        "--oom-score-adj",
        "100",
        "--shm-size",
        "1m",
        "--hostname",
        "inside",
        "-i",
    ];
    let mut different = Vec::new();
    for (name, words) in [("plain", &[][..]), ("full", &full)] {
        let end = [&host.names.tag, "sleep", "1d"];
        let begin = ["--name", name, "--network", "host"];
        host.docker
            .does(&[&["create"][..], &begin, words, &end].concat())?;
        let run = [&["run", "-d"][..], &begin, words, &end].concat();
        host.lab.xebec("root", &run)?.expect(0, &[])?;
        let dockers = first(&host.docker.does(&["inspect", name])?)?;
        let shown = host.lab.xebec("root", &["inspect", name])?;
        let ours = first(&shown.out)?;
        host.lab.xebec("root", &["rm", "-f", name])?.expect(0, &[])?;
        for field in FIELDS {
            let (dockers, ours) = (at(&dockers, field), at(&ours, field));
            if dockers != ours {
                different.push(format!("{name} {field}: docker {dockers:?}, Xebec {ours:?}"));
            }
        }
        let (dockers, ours) = (mounts(&dockers), mounts(&ours));
        if dockers != ours {
            different.push(format!("{name} Mounts: docker {dockers:?}, Xebec {ours:?}"));
        }
    }
    ensure!(different.is_empty(), "{}", different.join("\n"));
    Ok(Outcome::Passed(format!(
        "{} fields of two containers",
        FIELDS.len() + 1
    )))
}
