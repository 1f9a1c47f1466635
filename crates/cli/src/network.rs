//! `xebec network`.

use xebec_container::{Net, Status, cleanup_stale, containers};
use xebec_network::{Attachment, DEFAULT_NETWORK, Definition, NetworkError, Networks, Places};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::{Json, NetworkCommand};
use crate::container_lookup::directories;
use crate::failures::Failures;
use crate::origin::Origin;
use crate::template::{Format, print_found};
use crate::text;

/// `xebec network COMMAND`.
pub(crate) fn command(paths: &Paths, command: &NetworkCommand) -> Result<(), Failure> {
    let places = Places::new(paths.root(), paths.run());
    let networks = Networks::new(&places);
    match command {
        NetworkCommand::Create(args) => {
            let made = networks
                .create(&args.name, &args.new_network())
                .map_err(failure)?;
            match args.json {
                true => text::print_json(made.list())?,
                false => outln!("{}", made.name()),
            }
        }
        NetworkCommand::Ls(args) => list(&networks, *args)?,
        NetworkCommand::Inspect {
            networks: names,
            format,
            ..
        } => inspect(&places, &networks, names, format.as_ref())?,
        NetworkCommand::Rm {
            networks: names,
            json,
        } => {
            forget_dead_containers(paths);
            let (mut removed, mut failed) = (Vec::new(), Vec::new());
            for name in names {
                match networks.remove(name) {
                    Ok(()) => removed.push(name.clone()),
                    Err(error) => failed.push(error),
                }
            }
            print_names(&removed, *json)?;
            note_who_needs(paths, &removed);
            end_with(failed)?;
        }
        NetworkCommand::Prune { json, .. } => {
            forget_dead_containers(paths);
            let (removed, failed) = networks.prune().map_err(failure)?;
            print_names(&removed, *json)?;
            note_who_needs(paths, &removed);
            end_with(failed)?;
        }
    }
    Ok(())
}

/// Names the containers that do not run, and that cannot be started again without one of these networks.
fn note_who_needs(paths: &Paths, removed: &[String]) {
    if removed.is_empty() {
        return;
    }
    let found = containers(&directories(paths)).map(|found| found.containers);
    for container in found.unwrap_or_default() {
        let args = Origin::of(&container).and_then(|origin| origin.args());
        let Ok(Net::Network(network)) = args.map(|args| args.container.network.net()) else {
            continue;
        };
        let runs = matches!(container.status(), Status::Running | Status::Paused);
        // The default network is made again by itself.
        if !runs && network != DEFAULT_NETWORK && removed.contains(&network) {
            let name = &container.name;
            errln!(
                "note: {name}, which does not run, was started in the network {network}; create it again before you start \
                 {name}: xebec network create {network}"
            );
        }
    }
}

/// A container whose `xebec run` was killed uses its network no more.
fn forget_dead_containers(paths: &Paths) {
    if let Err(error) = cleanup_stale(&directories(paths)) {
        tracing::warn!("{error}");
    }
}

/// Prints the failures of a command that did all that it could, and ends it with the code of the first.
fn end_with(failed: Vec<NetworkError>) -> Result<(), Failure> {
    let mut failures = Failures::default();
    failed.into_iter().for_each(|error| failures.add(failure(error)));
    failures.end()
}

fn print_names(names: &[String], json: bool) -> Result<(), Failure> {
    if json {
        return text::print_json(&names);
    }
    for name in names {
        outln!("{name}");
    }
    Ok(())
}

/// A network as `xebec network ls --json` gives it.
#[derive(serde::Serialize)]
struct Listed {
    name: String,
    driver: String,
    subnet: Option<String>,
    gateway: Option<String>,
    bridge: Option<String>,
    internal: bool,
    containers: Vec<String>,
}

fn list(networks: &Networks, args: Json) -> Result<(), Failure> {
    let (found, unusable) = networks.list().map_err(failure)?;
    let mut listed = Vec::new();
    for (name, network) in &found {
        let containers = networks.containers(name).map_err(failure)?;
        listed.push(Listed::of(network, containers));
    }
    if !args.json {
        print_list(&listed);
    } else {
        text::print_json(&listed)?;
    }
    for error in unusable {
        errln!("xebec: {error}");
    }
    Ok(())
}

impl Listed {
    fn of(network: &Definition, containers: Vec<String>) -> Self {
        Self {
            name: network.name().to_owned(),
            driver: network.driver().to_owned(),
            subnet: network.subnets().first().map(|(subnet, _)| subnet.to_string()),
            gateway: network.gateway().map(|gateway| gateway.to_string()),
            bridge: network.bridge().map(str::to_owned),
            internal: network.is_internal(),
            containers,
        }
    }
}

/// The host's network and none are always there, as in docker; the default network is made at its first use.
fn print_list(listed: &[Listed]) {
    let heads = ["NETWORK", "DRIVER", "SUBNET", "BRIDGE", "CONTAINERS"];
    let mut rows = vec![text::row(heads)];
    if listed.iter().all(|one| one.name != DEFAULT_NETWORK) {
        rows.push(text::row([
            DEFAULT_NETWORK,
            "bridge",
            "chosen at first use",
            "-",
            "0",
        ]));
    }
    for one in listed {
        let subnet = one.subnet.as_deref().unwrap_or("-");
        let subnet = match one.internal {
            true => format!("{subnet} (internal)"),
            false => subnet.to_owned(),
        };
        let (bridge, containers) = (
            one.bridge.as_deref().unwrap_or("-"),
            one.containers.len().to_string(),
        );
        rows.push(text::row([&one.name, &one.driver, &subnet, bridge, &containers]));
    }
    rows.push(text::row(["host", "host", "-", "-", "-"]));
    rows.push(text::row(["none", "none", "-", "-", "-"]));
    out!("{}", text::table(&rows));
}

/// A network as `xebec network inspect` gives it.
#[derive(serde::Serialize)]
struct Inspected {
    #[serde(flatten)]
    listed: Listed,
    /// The JSON of its file.
    definition: serde_json::Value,
    /// The containers that are attached to it.
    attachments: Vec<Attached>,
}

/// A container in its network.
#[derive(serde::Serialize)]
struct Attached {
    container: String,
    names: Vec<String>,
    addresses: Vec<String>,
    mac: Option<String>,
    ports: Vec<String>,
}

fn inspect(
    places: &Places,
    networks: &Networks,
    names: &[String],
    format: Option<&Format>,
) -> Result<(), Failure> {
    let (attachments, _) = Attachment::all(places).map_err(failure)?;
    let one = |name: &String| {
        let network = networks.existing(name)?;
        let containers = networks.containers(name)?;
        let its = attachments.iter().filter(|one| one.network == *name);
        Ok(Inspected {
            listed: Listed::of(&network, containers),
            definition: network.list().clone().into(),
            attachments: its.map(Attached::of).collect(),
        })
    };
    let mut failures = Failures::default();
    let found = names.iter().map(|name| one(name).map_err(failure));
    let found: Vec<Inspected> = found.filter_map(|one| failures.keep(one)).collect();
    failures.keep(print_found(&found, format));
    failures.end()
}

impl Attached {
    fn of(attachment: &Attachment) -> Self {
        let addresses = attachment.addresses.clone().unwrap_or_default();
        Self {
            container: attachment.container.clone(),
            names: attachment.names.clone(),
            addresses: addresses.addresses,
            mac: addresses.mac,
            ports: attachment.ports.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The kind of a failure: not found for a missing network, wrong use for an error of the user, and this host for the rest.
fn failure(error: NetworkError) -> Failure {
    let kind = match &error {
        NetworkError::Unknown(_) => FailureKind::NotFound,
        NetworkError::Name(_)
        | NetworkError::Reserved(_)
        | NetworkError::Exists(_)
        | NetworkError::Used { .. }
        | NetworkError::Subnet { .. }
        | NetworkError::Collision { .. }
        | NetworkError::Gateway { .. } => FailureKind::Usage,
        _ => FailureKind::Host,
    };
    Failure::new(kind, error)
}
