//! The host name of a container, and its own `resolv.conf`, `hosts` and `hostname`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use xebec_network::{Resolver, host_lines};

use super::plan::NetworkPlan;
use crate::name::is_host_name;
use crate::{RunError, RunOptions};

/// The name of the host inside the container: the one that the user chose, the host's own on its network, that
/// of a container whose network it shares, and the container's name otherwise.
pub(crate) fn host_name(options: &RunOptions, plan: &NetworkPlan, id: &str) -> Result<String, RunError> {
    match (&options.hostname, plan) {
        (Some(name), _) if is_host_name(name) => Ok(name.clone()),
        (Some(name), _) => Err(RunError::Hostname(name.clone())),
        (None, NetworkPlan::Host) => {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Ok(if name.is_empty() { id.to_owned() } else { name })
        }
        (None, NetworkPlan::Joined(joined)) => {
            let name = fs::read_to_string(joined.files.join("hostname")).unwrap_or_default();
            let name = name.trim();
            Ok(if is_host_name(name) { name } else { id }.to_owned())
        }
        (None, NetworkPlan::None | NetworkPlan::Own(_)) => Ok(id.to_owned()),
    }
}

/// Writes `resolv.conf`, `hosts` and `hostname` into `directory`. Returns each file with the path at which
/// the container sees it.
///
/// On the host's network the contents are the host's. But a container may write to its `/etc`, so it gets
/// copies, as from docker and nerdctl. A container that shares another one's network shares these files, too.
pub(crate) fn write_network_files(
    directory: &Path,
    host_name: &str,
    options: &RunOptions,
    plan: &NetworkPlan,
) -> Result<Vec<(PathBuf, &'static str)>, RunError> {
    let targets = [
        ("resolv.conf", "/etc/resolv.conf"),
        ("hosts", "/etc/hosts"),
        ("hostname", "/etc/hostname"),
    ];
    if let NetworkPlan::Joined(joined) = plan {
        let files = targets.map(|(name, target)| (joined.files.join(name), target));
        return Ok(files.into_iter().filter(|(path, _)| path.is_file()).collect());
    }
    let is_own = matches!(plan, NetworkPlan::Own(_));
    let resolver = Resolver::of_host(&options.network.resolver, is_own);
    let texts = [
        resolver.text,
        hosts(host_name, options, plan)?,
        format!("{host_name}\n"),
    ];
    let mut written = Vec::new();
    for ((name, target), text) in targets.into_iter().zip(texts) {
        let path = directory.join(name);
        fs::write(&path, text).map_err(RunError::file("write", &path))?;
        set_mode(&path, 0o644)?;
        written.push((path, target));
    }
    Ok(written)
}

fn hosts(host_name: &str, options: &RunOptions, plan: &NetworkPlan) -> Result<String, RunError> {
    let loopback =
        |names: &str| format!("127.0.0.1\tlocalhost{names}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let named = format!(" {host_name}");
    let (mut text, host) = match plan {
        NetworkPlan::Host => {
            let text = fs::read_to_string("/etc/hosts").unwrap_or_else(|_| loopback(&named));
            (text, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
        }
        // Its own name is added with its address.
        NetworkPlan::Own(network) => (loopback(""), network.gateway().map(IpAddr::V4)),
        NetworkPlan::None | NetworkPlan::Joined(_) => (loopback(&named), None),
    };
    if !(text.is_empty() || text.ends_with('\n')) {
        text.push('\n');
    }
    Ok(text + &host_lines(&options.network.hosts, host)?)
}

/// Sets the mode of a file or directory, whatever this process's umask is.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), RunError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(RunError::file("set the mode of", path))
}
