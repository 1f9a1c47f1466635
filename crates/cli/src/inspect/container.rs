//! `xebec inspect` of a container: all facts that Xebec has about it, by Xebec's names, and those that scripts use most by docker's.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use xebec_container::{Container, FindError, Status};
use xebec_kernel::clock::rfc3339_milliseconds;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use super::docker_fields::Settings;
use crate::container_lookup::directories;
use crate::containers::{Known, Listed, settled};

/// Docker's time of an event that has not happened.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// A container as `xebec inspect` gives it.
#[derive(Serialize)]
struct Inspected<'a> {
    #[serde(flatten)]
    listed: &'a Listed<'a>,
    stop_signal: Option<i32>,
    stop_timeout_ms: Option<u64>,
    /// The command that made it, with its surroundings: an `Origin`, from which the container is started again.
    started_as: Option<&'a Value>,
    #[serde(flatten)]
    dockers: Dockers<'a>,
}

/// The same by docker's names, with docker's values.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Dockers<'a> {
    id: &'a str,
    name: &'a str,
    created: String,
    path: &'a str,
    args: &'a [String],
    /// The digest of the image's manifest.
    image: Option<&'a str>,
    restart_count: u32,
    state: State<'a>,
    config: Value,
    host_config: Value,
    mounts: Vec<Value>,
    network_settings: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct State<'a> {
    status: &'static str,
    running: bool,
    paused: bool,
    restarting: bool,
    #[serde(rename = "OOMKilled")]
    oom_killed: bool,
    pid: i32,
    /// 0 while it runs; nothing if nobody knows it.
    exit_code: Option<u8>,
    error: &'a str,
    started_at: String,
    finished_at: String,
}

/// The container of that name or id.
pub(super) fn find(paths: &Paths, name: &str) -> Result<Container, FindError> {
    let directories = directories(paths);
    settled(|| xebec_container::find(&directories, name), std::slice::from_ref)
}

/// The JSON that is printed of a container.
pub(super) fn shown(paths: &Paths, container: &Container, known: &Known) -> Result<Value, Failure> {
    let saved = container.saved.as_ref();
    let listed = Listed::of(container, known);
    let inspected = Inspected {
        stop_signal: saved.map(|saved| saved.stop_signal).filter(|signal| *signal != 0),
        stop_timeout_ms: saved.map(|saved| saved.stop_timeout_ms),
        started_as: saved.map(|saved| &saved.caller),
        dockers: Dockers::of(
            &listed,
            container.status(),
            Settings::of(paths, container, &listed),
        ),
        listed: &listed,
    };
    serde_json::to_value(&inspected).map_err(|error| Failure::new(FailureKind::Host, error))
}

impl<'a> Dockers<'a> {
    fn of(listed: &Listed<'a>, status: Status, settings: Settings) -> Self {
        let time =
            |milliseconds: Option<u64>| milliseconds.map_or_else(|| NEVER.to_owned(), rfc3339_milliseconds);
        let is_running = matches!(status, Status::Running | Status::Paused | Status::Restarting);
        Self {
            id: listed.id,
            name: listed.name,
            created: rfc3339_milliseconds(listed.created_ms),
            path: listed.command.first().map(String::as_str).unwrap_or_default(),
            args: listed.command.get(1..).unwrap_or_default(),
            image: listed.manifest,
            restart_count: listed.restarts,
            state: State {
                status: listed.status,
                running: is_running,
                paused: status == Status::Paused,
                restarting: status == Status::Restarting,
                oom_killed: listed.oom_killed,
                pid: listed.pid.unwrap_or_default(),
                exit_code: match status {
                    Status::Created | Status::Running | Status::Paused => Some(0),
                    _ => listed.exit_code,
                },
                error: listed.reason.unwrap_or_default(),
                started_at: time(listed.started_ms),
                finished_at: time(listed.finished_ms),
            },
            config: settings.config,
            host_config: settings.host_config,
            mounts: settings.mounts,
            network_settings: network_settings(listed),
        }
    }
}

/// Of a container without a network of its own, and of one that does not run, all is empty.
fn network_settings(listed: &Listed<'_>) -> Value {
    let addresses = listed.network.and_then(|network| network.addresses.as_ref());
    let address = addresses.and_then(|addresses| addresses.addresses.first());
    let (address, length) = address
        .and_then(|address| address.split_once('/'))
        .unwrap_or_default();
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let mut settings = json!({
        "IPAddress": address,
        "IPPrefixLen": length.parse().unwrap_or(0_u8),
        "Gateway": text(addresses.and_then(|addresses| addresses.gateway.as_ref())),
        "MacAddress": text(addresses.and_then(|addresses| addresses.mac.as_ref())),
    });
    let networks = listed.network.filter(|network| !network.name.is_empty());
    let networks: BTreeMap<&str, Value> = networks
        .iter()
        .map(|network| (network.name.as_str(), settings.clone()))
        .collect();
    let mut ports: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for port in listed.published {
        let of = ports.entry(format!("{}/{}", port.container_port, port.protocol));
        of.or_default()
            .push(json!({ "HostIp": port.host_ip, "HostPort": port.host_port.to_string() }));
    }
    if let Some(settings) = settings.as_object_mut() {
        settings.insert("Networks".to_owned(), json!(networks));
        settings.insert("Ports".to_owned(), json!(ports));
    }
    settings
}
