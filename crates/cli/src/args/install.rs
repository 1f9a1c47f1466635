//! `xebec install`.

use std::path::PathBuf;

use clap::Args;

/// `xebec install`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec install --dry-run                        list the changes, key by key\n  \
    xebec install --restart-containerd             install, and restart containerd to use it\n  \
    xebec install --docker --restart-containerd    for Docker too, once you restart it\n  \
    xebec install --containerd /etc/k3s.toml       change another configuration file of containerd\n  \
    xebec install --uninstall                      undo the installation; images and containers stay\n\n\
    Comments, order and all other keys of containerd's configuration stay as they are.")]
pub(crate) struct InstallArgs {
    /// Print the changes, and make none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Undo the installation. Files that somebody changed since then stay.
    #[arg(long)]
    pub(crate) uninstall: bool,
    /// containerd's configuration file.
    #[arg(long, value_name = "FILE", default_value = xebec_install::CONTAINERD_CONFIG)]
    pub(crate) containerd: PathBuf,
    /// Do not change containerd. `xebec run` and `xebec mount` do not need it.
    #[arg(long, conflicts_with_all = ["containerd", "restart_containerd"])]
    pub(crate) no_containerd: bool,
    /// Leave Kubernetes' default snapshotter as it is. Images are lazy only for pods and clients that name `xebec`.
    #[arg(long)]
    pub(crate) keep_default: bool,
    /// Let Docker use lazy images too. FILE is Docker's configuration file, if it is not the usual one.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = xebec_install::docker::DOCKER_CONFIG,
        conflicts_with = "no_containerd"
    )]
    pub(crate) docker: Option<PathBuf>,
    /// Restart containerd if its configuration changed. Running containers go on.
    #[arg(long)]
    pub(crate) restart_containerd: bool,
    /// Keep running after the installation until a signal comes, as the container of a DaemonSet must.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) stay: bool,
    /// The path of the host's root directory, for a container that installs Xebec on its host.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) sysroot: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
