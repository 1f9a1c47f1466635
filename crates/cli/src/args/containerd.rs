//! The command line of what concerns containerd's images.

use std::path::PathBuf;

use clap::Args;

use super::image::ImageArgs;

// No documentation of its own: it would be shown as the command's.
#[derive(Debug, Args)]
pub(crate) struct SnapshotterName {
    /// What containerd's configuration calls Xebec's snapshotter.
    #[arg(
        long,
        value_name = "NAME",
        env = "CONTAINERD_SNAPSHOTTER",
        default_value = "xebec"
    )]
    pub(crate) snapshotter: String,
}

/// `xebec ctr-pull`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec ctr-pull docker.io/library/nginx:1.27 && ctr run --snapshotter xebec docker.io/library/nginx:1.27 web\n  \
    xebec ctr-pull --namespace k8s.io registry.example.com/app:1.4\n  \
    xebec ctr-pull --require-lazy registry.example.com/app:1.4   fail, and say why, rather than unpack\n  \
    xebec ctr-pull --blobs registry.example.com/app:1.4          for `ctr images export` and the like, afterwards\n\n\
    The image has its full name in containerd, which is printed. containerd and Xebec's daemon must know each other \
    (`xebec install`).")]
pub(crate) struct CtrPullArgs {
    /// Which image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// containerd's socket.
    #[arg(
        long,
        value_name = "SOCKET",
        env = "CONTAINERD_ADDRESS",
        default_value = xebec_protocol::settings::USUAL_CONTAINERD
    )]
    pub(crate) address: PathBuf,
    /// Which of containerd's namespaces gets the image.
    #[arg(
        long,
        short,
        value_name = "NAME",
        env = "CONTAINERD_NAMESPACE",
        default_value = "default"
    )]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) named: SnapshotterName,
    /// Fetch the blobs of lazy layers, too: for exporting, converting, or pushing elsewhere.
    #[arg(long)]
    pub(crate) blobs: bool,
    /// Fail rather than unpack a layer that cannot be lazy.
    #[arg(long)]
    pub(crate) require_lazy: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec docker-relay`.
#[derive(Debug, Args)]
#[command(
    after_help = "A service that `xebec install --docker` sets up. Docker's daemon.json names the link as \"containerd\". \
    While this runs, the link leads here; when it is told to end, to containerd itself."
)]
pub(crate) struct DockerRelayArgs {
    /// containerd's socket; by default what `address` in daemon.toml says, or the usual one.
    #[arg(long, value_name = "SOCKET", env = "CONTAINERD_ADDRESS")]
    pub(crate) address: Option<PathBuf>,
    /// The name at which Docker finds containerd. Xebec makes its directory, and closes it to other users.
    #[arg(long, value_name = "LINK", default_value = xebec_daemon::relay::USUAL_LINK)]
    pub(crate) link: PathBuf,
    #[command(flatten)]
    pub(crate) named: SnapshotterName,
}
