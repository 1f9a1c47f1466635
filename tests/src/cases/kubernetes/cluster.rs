//! A control plane with one node.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;
use serde_json::{Value, json};

use crate::cases::containerd::cri;
use crate::containerd::{Containerd, Line, Snapshots, listens};
use crate::control_plane::ControlPlane;
use crate::kubelet::Kubelet;
use crate::world::World;

/// A stand-in for a network plugin, since a node without one gets no pods: an address that leads nowhere. Pods of these cases are in the
/// node's network.
const NETWORK: &str = r#"#!/bin/sh
cat > /dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD)
    printf '{"cniVersion": "1.0.0", "interfaces": [{"name": "%s", "sandbox": "%s"}],' "$CNI_IFNAME" "$CNI_NETNS"
    echo '"ips": [{"address": "198.51.100.2/32", "interface": 0}]}'
    ;;
esac
"#;

/// A control plane and its node. Upper fields end first.
pub(super) struct Cluster<'a> {
    pub(super) kubelet: Kubelet<'a>,
    pub(super) containerd: Containerd<'a>,
    pub(super) snapshots: Snapshots<'a>,
    pub(super) plane: ControlPlane,
}

impl<'a> Cluster<'a> {
    /// Starts all of it; `more` is laid over the kubelet's configuration.
    pub(super) fn start(world: &'a World, more: &Value) -> Result<Self> {
        // It takes some seconds, in which the rest is made.
        let mut plane = ControlPlane::begin(world)?;
        let pause = cri::push_pause(world)?;
        let snapshots = Snapshots::start(world)?;
        snapshots.restart_with(&format!("image_service = {:?}\n", listens(world)))?;
        let settings = cri::configuration(world, Line::Two, &pause)? + &network(world)?;
        let containerd = Containerd::start(world, Line::Two, &settings)?;
        containerd.tool("cri", &["pull", &pause])?;
        plane.is_ready()?;
        let mut settings = json!({"nodeStatusUpdateFrequency": "1s"});
        for (name, value) in more.as_object().into_iter().flatten() {
            settings[name] = value.clone();
        }
        let kubelet = Kubelet::start(world, &snapshots, &settings)?;
        plane.has_node("Ready", "True")?;
        Ok(Self {
            kubelet,
            containerd,
            snapshots,
            plane,
        })
    }

    /// Starts the kubelet again.
    pub(super) fn restart_kubelet(&mut self) -> Result<()> {
        self.kubelet.kill()?;
        self.kubelet.wake()
    }

    pub(super) fn exec(&self, id: &str, line: &str) -> Result<String> {
        exec(&self.containerd, id, line)
    }
}

/// Runs a line of shell in a container, by the id that the kubelet has of it.
pub(super) fn exec(containerd: &Containerd<'_>, id: &str, line: &str) -> Result<String> {
    let id = id.trim_start_matches("containerd://");
    let words = ["tasks", "exec", "--exec-id", "case", id, "sh", "-c", line];
    containerd.does(&[&["--namespace", cri::NAMESPACE][..], &words].concat())
}

/// Makes the plugin, and gives what containerd is to be told of it, in the table of its networks.
pub(super) fn network(world: &World) -> Result<String> {
    let programs = world.path("plugins");
    fs::create_dir_all(&programs)?;
    for name in ["nowhere", "loopback"] {
        let program = programs.join(name);
        fs::write(&program, NETWORK)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    let list = json!({"cniVersion": "1.0.0", "name": "nowhere", "plugins": [{"type": "nowhere"}]});
    fs::write(world.path("networks/nowhere.conflist"), list.to_string())?;
    Ok(format!("bin_dirs = [{programs:?}]\n"))
}

/// How many times the daemon got a part of a blob.
pub(super) fn blobs(world: &World) -> Result<usize> {
    let access = fs::read(world.path("registry/access"))?;
    let text = String::from_utf8_lossy(&access).into_owned();
    let is_read = |line: &&str| line.contains("/blobs/sha256:") && line.contains("\" 206 ");
    Ok(text.lines().filter(is_read).count())
}
