//! What a container was made with, by docker's names and with docker's values: `Config`, `HostConfig` and `Mounts` of `xebec inspect`.
//!
//! It is read from the command that made the container, which is kept to start it again, and from its image's configuration. Where
//! either is not known any more (an earlier version made the container, the image was removed), their part is left out.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use xebec_container::{Container, ImageConfig, RunOptions, environment};
use xebec_format::digest::Digest;
use xebec_images::record::Records;
use xebec_protocol::paths::Paths;
use xebec_volume::{Source, Volume, volumes_of};

use crate::args::RunArgs;
use crate::container_lookup::directories;
use crate::containers::Listed;
use crate::origin::Origin;

/// Docker's names for what is said of a container.
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
        if let Some(args) = args_of(container) {
            let options = args.container.options(&args.service.image, &args.service.command);
            let image = image_config(paths, listed.manifest).unwrap_or_default();
            add(&mut config, of_process(&args, &options, &image));
            add(&mut host_config, of_host(&args, &options));
            mounts = mounted(paths, container, &options);
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

/// The command that made a container. Relative paths in it are meant from where it was called.
fn args_of(container: &Container) -> Option<RunArgs> {
    let origin = Origin::of(container).ok()?;
    let here = std::env::current_dir();
    origin.enter_directory().ok()?;
    let args = origin.args();
    if let Ok(here) = here {
        let _ = std::env::set_current_dir(here);
    }
    args.ok()
}

/// The configuration of an image that this host knows.
fn image_config(paths: &Paths, manifest: Option<&str>) -> Option<ImageConfig> {
    let digest: Digest = manifest?.parse().ok()?;
    let record = Records::new(paths.images()).get(digest)?;
    ImageConfig::from_blob(record.config.as_bytes()).ok()
}

/// Of `Config`: the first process.
fn of_process(args: &RunArgs, options: &RunOptions, image: &ImageConfig) -> Value {
    let chosen = |own: &Option<String>, images: &str| own.clone().unwrap_or_else(|| images.to_owned());
    let env = environment(image, &options.env).into_iter();
    let entrypoint = options.entrypoint.as_ref().unwrap_or(&image.entrypoint);
    let is_own = options.entrypoint.is_some() || !options.command.is_empty();
    json!({
        "Env": env.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "Cmd": if is_own { &options.command } else { &image.cmd },
        "Entrypoint": entrypoint,
        "User": chosen(&options.user, &image.user),
        "WorkingDir": chosen(&options.workdir, &image.working_dir),
        "Hostname": options.hostname.clone().unwrap_or_default(),
        "Tty": args.tty,
        "OpenStdin": args.interactive,
        "ExposedPorts": image.exposed_ports,
    })
}

/// Of `HostConfig`: what the container may do and use of the host.
fn of_host(args: &RunArgs, options: &RunOptions) -> Value {
    let confinement = &options.confinement;
    let texts =
        |list: &[xebec_confinement::Capability]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut ports: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for port in &options.network.ports {
        let of = ports.entry(format!("{}/{}", port.container, port.protocol));
        of.or_default()
            .push(json!({ "HostIp": port.address, "HostPort": port.host.to_string() }));
    }
    let binds = options.volumes.iter().filter_map(bind);
    let tmpfs = options.tmpfs.iter();
    json!({
        "AutoRemove": args.rm,
        "Binds": binds.collect::<Vec<_>>(),
        "Tmpfs": tmpfs.map(|tmpfs| (tmpfs.target.display().to_string(), tmpfs.options())).collect::<BTreeMap<_, _>>(),
        "NetworkMode": options.net.to_string(),
        "PortBindings": ports,
        "PublishAllPorts": options.network.publish_all,
        "PidMode": options.pid.to_string(),
        "IpcMode": options.ipc.to_string(),
        "Init": options.init.is_some(),
        "ReadonlyRootfs": confinement.read_only,
        "CapAdd": texts(&confinement.cap_add),
        "CapDrop": texts(&confinement.cap_drop),
        "GroupAdd": options.group_add,
        "Memory": confinement.memory.map_or(0, |size| size.0),
        "MemoryReservation": confinement.memory_reservation.map_or(0, |size| size.0),
        "NanoCpus": confinement.cpus.map_or(0, |cpus| cpus.thousandths() * 1_000_000),
        "CpuShares": confinement.cpu_shares.unwrap_or_default(),
        "CpusetCpus": confinement.cpuset_cpus.as_ref().map(ToString::to_string).unwrap_or_default(),
        "CpusetMems": confinement.cpuset_mems.as_ref().map(ToString::to_string).unwrap_or_default(),
        "PidsLimit": confinement.pids_limit.and_then(|limit| limit.0).unwrap_or_default(),
        "ShmSize": confinement.shm_size.map_or(0, |size| size.0),
        "OomScoreAdj": confinement.oom_score_adj.unwrap_or_default(),
    })
}

/// A mount as `--volume` takes it.
fn bind(volume: &Volume) -> Option<String> {
    let source = match &volume.source {
        Source::Host { path, .. } => path.display().to_string(),
        Source::Named(name) => name.clone(),
        Source::Anonymous => return None,
    };
    let end = if volume.read_only { ":ro" } else { "" };
    Some(format!("{source}:{}{end}", volume.target.display()))
}

/// `Mounts`: files and directories of the host, volumes, memory.
fn mounted(paths: &Paths, container: &Container, options: &RunOptions) -> Vec<Value> {
    let directories = directories(paths);
    let store = directories.volumes();
    let used = volumes_of(&container.directory);
    let of_volume = |name: &str| {
        let place = store
            .get(name)
            .map(|volume| volume.mountpoint.display().to_string());
        json!({ "Type": "volume", "Name": name, "Source": place.unwrap_or_default(), "Driver": "local" })
    };
    let volumes = options.volumes.iter().map(|volume| {
        let mut shown = match &volume.source {
            Source::Host { path, .. } => json!({ "Type": "bind", "Source": path }),
            Source::Named(name) => of_volume(name),
            Source::Anonymous => {
                let own = used.iter().find(|(_, target)| *target == volume.target);
                own.map_or_else(|| json!({ "Type": "volume" }), |(name, _)| of_volume(name))
            }
        };
        let mode = if volume.read_only { "ro" } else { "" };
        add(
            &mut shown,
            json!({ "Destination": volume.target, "Mode": mode, "RW": !volume.read_only }),
        );
        shown
    });
    let tmpfs = options.tmpfs.iter().map(|tmpfs| {
        json!({
            "Type": "tmpfs", "Source": "", "Destination": tmpfs.target, "Mode": tmpfs.options(),
            "RW": !tmpfs.options().split(',').any(|option| option == "ro"),
        })
    });
    volumes.chain(tmpfs).collect()
}
