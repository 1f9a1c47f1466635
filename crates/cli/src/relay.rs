//! `xebec docker-relay`.

use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};
use xebec_engines::relay::{Place, serve};
use xebec_images::clients::Clients;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings, USUAL_CONTAINERD};

use crate::args::DockerRelayArgs;
use crate::runtime;

/// `xebec docker-relay`. Ends when it is told to.
pub(crate) fn relay(paths: &Paths, args: &DockerRelayArgs) -> Result<(), Failure> {
    let settings = Settings::load(&paths.settings(), &Overrides::new())?.snapshotter;
    let place = Place {
        containerd: args
            .address
            .clone()
            .or(settings.address)
            .unwrap_or_else(|| PathBuf::from(USUAL_CONTAINERD)),
        link: args.link.clone(),
        snapshotter: args.named.snapshotter.clone(),
        docker_config: settings.docker_config,
    };
    runtime::start()?.block_on(async {
        let ask = |kind| signal(kind).map_err(|error| Failure::host("wait for a signal", error));
        let mut terminate = ask(SignalKind::terminate())?;
        let mut interrupt = ask(SignalKind::interrupt())?;
        let ended = async {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
        };
        serve(Clients::new(paths), &place, xebec_keeper::say_ready, ended).await
    })
}
