//! The command line of what concerns containerd's images.

use std::path::PathBuf;

use clap::Args;

use super::image::ImageArgs;

// No documentation of its own: it would be shown as the command's.
#[derive(Debug, Args)]
pub(crate) struct SnapshotterName {
    /// The name of Xebec's snapshotter in containerd's configuration.
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
    xebec ctr-pull --require-lazy registry.example.com/app:1.4   fail if a layer cannot be lazy\n  \
    xebec ctr-pull --blobs registry.example.com/app:1.4          fetch blobs too, for `ctr images export`\n\n\
    The command prints the image's full name in containerd. Run `xebec install` first: it connects containerd and \
    Xebec's daemon.")]
pub(crate) struct CtrPullArgs {
    /// The image.
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
    /// The namespace of containerd that gets the image.
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
    /// Fetch the blobs of lazy layers, too. Exporting, converting and pushing the image need them.
    #[arg(long)]
    pub(crate) blobs: bool,
    /// Fail if a layer cannot be lazy, instead of unpacking it.
    #[arg(long)]
    pub(crate) require_lazy: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec docker-relay`.
#[derive(Debug, Args)]
#[command(
    after_help = "`xebec install --docker` sets this up as a service. Docker's daemon.json names the link as \"containerd\". \
    While the relay runs, the link leads to it; when the relay stops, it links to containerd itself."
)]
pub(crate) struct DockerRelayArgs {
    /// containerd's socket; by default what `address` in daemon.toml says, or the usual one.
    #[arg(long, value_name = "SOCKET", env = "CONTAINERD_ADDRESS")]
    pub(crate) address: Option<PathBuf>,
    /// The link by which Docker finds containerd. Xebec makes its directory, and closes it to other users.
    #[arg(long, value_name = "LINK", default_value = xebec_engines::relay::USUAL_LINK)]
    pub(crate) link: PathBuf,
    #[command(flatten)]
    pub(crate) named: SnapshotterName,
}
