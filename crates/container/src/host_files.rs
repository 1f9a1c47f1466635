//! The host name of a container, and its own `resolv.conf`, `hosts` and `hostname`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::name::is_host_name;
use crate::{Net, RunError, RunOptions};

/// The name of the host inside the container: the one that the user chose, the host's own on its network, and
/// the container's name otherwise.
pub(crate) fn host_name(options: &RunOptions, id: &str) -> Result<String, RunError> {
    match &options.hostname {
        Some(name) if is_host_name(name) => Ok(name.clone()),
        Some(name) => Err(RunError::Hostname(name.clone())),
        None if options.net == Net::Host => {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Ok(if name.is_empty() { id.to_owned() } else { name })
        }
        None => Ok(id.to_owned()),
    }
}

/// Writes `resolv.conf`, `hosts` and `hostname` into `directory`. Returns each file with the path at which
/// the container sees it.
///
/// On the host's network the contents are the host's. But a container may write to its `/etc`, so it gets
/// copies, as from docker and nerdctl.
pub(crate) fn write_network_files(
    directory: &Path,
    host_name: &str,
    net: Net,
) -> Result<Vec<(PathBuf, &'static str)>, RunError> {
    let host = |path: &str| fs::read_to_string(path).ok();
    let loopback =
        || format!("127.0.0.1\tlocalhost {host_name}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let hosts = if net == Net::Host {
        host("/etc/hosts")
    } else {
        None
    };
    let files = [
        (
            "resolv.conf",
            "/etc/resolv.conf",
            host("/etc/resolv.conf").unwrap_or_default(),
        ),
        ("hosts", "/etc/hosts", hosts.unwrap_or_else(loopback)),
        ("hostname", "/etc/hostname", format!("{host_name}\n")),
    ];
    let mut written = Vec::new();
    for (name, target, text) in files {
        let path = directory.join(name);
        fs::write(&path, text).map_err(RunError::file("write", &path))?;
        set_mode(&path, 0o644)?;
        written.push((path, target));
    }
    Ok(written)
}

/// Sets the mode of a file or directory, whatever this process's umask is.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), RunError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(RunError::file("set the mode of", path))
}
