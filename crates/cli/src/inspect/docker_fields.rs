//! The options that made a container, by docker's names and with docker's values: `Config`, `HostConfig` and `Mounts` of `xebec inspect`.
//!
//! They are read from the command that made the container, which is kept to start it again, and from its image's configuration.
//! Unknown values are left out. A container that an earlier version made shows only the image, the labels and the restart policy.
//! When the image is removed, the values that the user left to it are unknown, too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use xebec_confinement::{Capability, MemorySwap};
use xebec_container::{Container, ImageConfig, Net, PidMode, RunOptions, SHARED_MEMORY};
use xebec_format::digest::Digest;
use xebec_images::record::Records;
use xebec_network::HostPorts;
use xebec_protocol::paths::Paths;
use xebec_volume::{Mount, Relabel, Source, Volume, volumes_of};

use crate::args::RunArgs;
use crate::container_lookup::directories;
use crate::containers::Listed;
use crate::origin::Origin;

/// Docker's names for the facts about a container.
pub(super) struct Settings {
    pub(super) config: Value,
    pub(super) host_config: Value,
    pub(super) mounts: Vec<Value>,
}

impl Settings {
    pub(super) fn of(paths: &Paths, container: &Container, listed: &Listed<'_>) -> Self {
        let (policy, limit) = listed.restart.split_once(':').unwrap_or((&listed.restart, "0"));
        let mut config = json!({ "Image": listed.image, "Labels": listed.labels });
        let mut host_config = json!({
            "RestartPolicy": { "Name": policy, "MaximumRetryCount": limit.parse().unwrap_or(0_u32) },
        });
        let mut mounts = Vec::new();
        if let Ok(args) = Origin::of(container).and_then(|origin| origin.args()) {
            let options = args.container.options(&args.service.image, &args.service.command);
            let image = image_config(paths, listed.manifest);
            add(&mut config, of_process(listed.name, &args, &options));
            add(&mut config, of_image_and_process(&options, image.as_ref()));
            add(&mut host_config, of_host(&args, &options));
            mounts = mounted(paths, container, &args);
        }
        Self {
            config,
            host_config,
            mounts,
        }
    }
}

fn add(to: &mut Value, more: Value) {
    if let (Value::Object(to), Value::Object(more)) = (to, more) {
        to.extend(more);
    }
}

/// The configuration of an image that this host knows.
fn image_config(paths: &Paths, manifest: Option<&str>) -> Option<ImageConfig> {
    let digest: Digest = manifest?.parse().ok()?;
    let record = Records::new(paths.images()).get(digest)?;
    ImageConfig::from_blob(record.config.as_bytes()).ok()
}

/// A list as docker has it: nothing for an empty one.
fn list<T: serde::Serialize>(all: &[T]) -> Value {
    if all.is_empty() { Value::Null } else { json!(all) }
}

/// The fields of `Config` that the image does not decide.
fn of_process(name: &str, args: &RunArgs, options: &RunOptions) -> Value {
    let hostname = options.hostname.clone().unwrap_or_else(|| match options.net {
        Net::Host => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        _ => name.to_owned(),
    });
    json!({ "Hostname": hostname, "Tty": args.tty, "OpenStdin": args.interactive })
}

/// The fields of `Config` that the image decides, unless the user did. If the image is not known any more, only the user's choices
/// are there.
fn of_image_and_process(options: &RunOptions, image: Option<&ImageConfig>) -> Value {
    let mut config = json!({});
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            add(&mut config, json!({ key: value }));
        }
    };
    put("Env", variables(options, image));
    let is_own = options.entrypoint.is_some() || !options.command.is_empty();
    let cmd = if is_own {
        Some(&options.command)
    } else {
        image.map(|image| &image.cmd)
    };
    put("Cmd", cmd.map(|cmd| list(cmd)));
    let entrypoint = options
        .entrypoint
        .as_ref()
        .or(image.map(|image| &image.entrypoint));
    put("Entrypoint", entrypoint.map(|entrypoint| list(entrypoint)));
    let user = options.user.as_ref().or(image.map(|image| &image.user));
    put("User", user.map(|user| json!(user)));
    let workdir = options.workdir.as_ref().or(image.map(|image| &image.working_dir));
    put("WorkingDir", workdir.map(|workdir| json!(workdir)));
    let published = options.network.ports.iter();
    let mut ports: BTreeSet<String> = published
        .map(|port| format!("{}/{}", port.container, port.protocol))
        .collect();
    ports.extend(image.iter().flat_map(|image| image.exposed_ports.keys().cloned()));
    let ports: BTreeMap<String, Value> = ports.into_iter().map(|port| (port, json!({}))).collect();
    put("ExposedPorts", (!ports.is_empty()).then(|| json!(ports)));
    config
}

/// The user's variables, and then the image's that they do not replace.
fn variables(options: &RunOptions, image: Option<&ImageConfig>) -> Option<Value> {
    let own = options.env.iter().map(|(name, value)| format!("{name}={value}"));
    let is_replaced = |entry: &&String| {
        let name = entry.split('=').next().unwrap_or_default();
        options.env.iter().any(|(own, _)| own == name)
    };
    let images = image.map_or(&[][..], |image| &image.env);
    let all: Vec<String> = own
        .chain(images.iter().filter(|entry| !is_replaced(entry)).cloned())
        .collect();
    (image.is_some() || !all.is_empty()).then(|| json!(all))
}

/// The fields of `HostConfig`: the container's permissions and limits on the host.
fn of_host(args: &RunArgs, options: &RunOptions) -> Value {
    let confinement = &options.confinement;
    let binds: Vec<String> = args
        .container
        .volumes
        .by_volume()
        .iter()
        .filter_map(bind)
        .collect();
    let tmpfs = args.container.volumes.by_tmpfs().iter();
    let tmpfs: BTreeMap<String, &str> = tmpfs
        .map(|tmpfs| (tmpfs.target.display().to_string(), tmpfs.asked_options()))
        .collect();
    let texts = |all: &[Capability]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let memory = confinement.memory.map_or(0, |size| size.0);
    let memory_swap = match confinement.memory_swap {
        Some(MemorySwap::Unlimited) => json!(-1),
        Some(MemorySwap::Limited(size)) if size.0 > 0 => json!(size.0),
        _ => json!(memory.saturating_mul(2)),
    };
    let pid = match &options.pid {
        PidMode::Private => String::new(),
        pid => pid.to_string(),
    };
    let mut host = json!({
        "AutoRemove": args.rm,
        "Binds": list(&binds),
        "NetworkMode": options.net.to_string(),
        "PortBindings": port_bindings(options),
        "PublishAllPorts": options.network.publish_all,
        "PidMode": pid,
        "IpcMode": options.ipc.to_string(),
        "ReadonlyRootfs": confinement.read_only,
        "CapAdd": list(&texts(&confinement.cap_add)),
        "CapDrop": list(&texts(&confinement.cap_drop)),
        "GroupAdd": list(&options.group_add),
        "Memory": memory,
        "MemoryReservation": confinement.memory_reservation.map_or(0, |size| size.0),
        "MemorySwap": memory_swap,
        "NanoCpus": confinement.cpus.map_or(0, |cpus| cpus.thousandths().saturating_mul(1_000_000)),
        "CpuShares": confinement.cpu_shares.unwrap_or_default(),
        "CpusetCpus": confinement.cpuset_cpus.as_ref().map(ToString::to_string).unwrap_or_default(),
        "CpusetMems": confinement.cpuset_mems.as_ref().map(ToString::to_string).unwrap_or_default(),
        "PidsLimit": confinement.pids_limit.and_then(|limit| limit.0),
        "ShmSize": confinement.shm_size.map_or(SHARED_MEMORY, |size| size.0),
        "OomScoreAdj": confinement.oom_score_adj.unwrap_or_default(),
    });
    // Docker leaves these out where they were not asked for.
    if options.init.is_some() {
        add(&mut host, json!({ "Init": true }));
    }
    if !tmpfs.is_empty() {
        add(&mut host, json!({ "Tmpfs": tmpfs }));
    }
    host
}

/// The ports of the host for each port of the container.
fn port_bindings(options: &RunOptions) -> BTreeMap<String, Vec<Value>> {
    let mut ports: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for port in &options.network.ports {
        let of = ports.entry(format!("{}/{}", port.container, port.protocol));
        // Docker shows the request: an empty value stands for all addresses, and for any port.
        let address = (!port.address.is_unspecified()).then(|| port.address.to_string());
        let host = match &port.host {
            HostPorts::Any => String::new(),
            HostPorts::Of(ports) if ports.start() == ports.end() => ports.start().to_string(),
            HostPorts::Of(ports) => format!("{}-{}", ports.start(), ports.end()),
        };
        of.or_default()
            .push(json!({ "HostIp": address.unwrap_or_default(), "HostPort": host }));
    }
    ports
}

/// A mount in the form that `--volume` takes.
fn bind(volume: &Volume) -> Option<String> {
    let source = match &volume.source {
        Source::Host { path, .. } => path.display().to_string(),
        Source::Named(name) => name.clone(),
        Source::Anonymous => return None,
    };
    let options = options_of(volume).join(",");
    let end = if options.is_empty() {
        options
    } else {
        format!(":{options}")
    };
    Some(format!("{source}:{}{end}", volume.target.display()))
}

/// The options of a mount that are not the usual ones.
fn options_of(volume: &Volume) -> Vec<&'static str> {
    let relabel = volume.relabel.as_ref().map(|relabel| match relabel {
        Relabel::Shared => "z",
        Relabel::Private => "Z",
    });
    let propagation = volume.propagation;
    let usual = propagation == xebec_volume::Propagation::default();
    let is_copied = volume.copies || matches!(volume.source, Source::Host { .. });
    let mut options = Vec::new();
    options.extend(volume.read_only.then_some("ro"));
    options.extend(relabel);
    options.extend((!is_copied).then_some("nocopy"));
    options.extend((!usual).then(|| propagation.name()));
    options
}

/// `Mounts`: files and directories of the host, volumes, and memory that `--mount` asks for.
fn mounted(paths: &Paths, container: &Container, args: &RunArgs) -> Vec<Value> {
    let store = directories(paths).volumes();
    let used = volumes_of(&container.directory);
    let of_volume = |name: &str| {
        let place = store
            .get(name)
            .map(|volume| volume.mountpoint.display().to_string());
        json!({ "Type": "volume", "Name": name, "Source": place.unwrap_or_default(), "Driver": "local", "Propagation": "" })
    };
    let shown = |volume: &Volume| {
        let mut shown = match &volume.source {
            Source::Host { path, .. } => {
                json!({ "Type": "bind", "Source": path, "Propagation": volume.propagation.name() })
            }
            Source::Named(name) => of_volume(name),
            Source::Anonymous => {
                let own = used.iter().find(|(_, target)| *target == volume.target);
                own.map_or_else(|| json!({ "Type": "volume" }), |(name, _)| of_volume(name))
            }
        };
        let mode = match (options_of(volume).join(","), &volume.source) {
            // Docker's default of volumes that have a name.
            (mode, Source::Named(_)) if mode.is_empty() => "z".to_owned(),
            (mode, _) => mode,
        };
        add(
            &mut shown,
            json!({ "Destination": volume.target, "Mode": mode, "RW": !volume.read_only }),
        );
        shown
    };
    let volumes = args.container.volumes.by_volume().iter().map(shown);
    let mounts = args.container.volumes.by_mount().iter().map(|mount| match mount {
        Mount::Volume(volume) => shown(volume),
        Mount::Tmpfs(tmpfs) => json!({
            "Type": "tmpfs", "Source": "", "Destination": tmpfs.target, "Mode": "", "Propagation": "",
            "RW": !tmpfs.asked_options().split(',').any(|option| option == "ro"),
        }),
    });
    volumes.chain(mounts).collect()
}
