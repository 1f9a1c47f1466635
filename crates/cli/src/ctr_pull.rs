//! `xebec ctr-pull`.

use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};
use xebec_engines::ctr_pull::{Pulled, PulledLayer, Target, pull};
use xebec_images::clients::Clients;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use crate::args::CtrPullArgs;
use crate::{caller, runtime, text};

/// `xebec ctr-pull IMAGE`.
pub(crate) fn ctr_pull(paths: &Paths, args: &CtrPullArgs) -> Result<(), Failure> {
    let clients = Clients::new(paths);
    let target = Target {
        socket: socket(&args.address),
        namespace: args.namespace.clone(),
        snapshotter: args.named.snapshotter.clone(),
        blobs: args.blobs,
        require_lazy: args.require_lazy,
    };
    let request = caller::image_request(&args.image);
    let pulled = runtime::with_progress(format!("pull {}", args.image.image), async |report| {
        let ask = |kind| signal(kind).map_err(|error| Failure::host("wait for a signal", error));
        let mut terminate = ask(SignalKind::terminate())?;
        let mut interrupt = ask(SignalKind::interrupt())?;
        let interrupted = async {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
        };
        pull(&clients, &request, &target, interrupted, report).await
    })?;
    if args.json {
        return text::print_json(&pulled);
    }
    print_pulled(&pulled);
    Ok(())
}

/// A socket as containerd's own clients take it.
fn socket(address: &Path) -> PathBuf {
    let text = address.to_str().and_then(|text| text.strip_prefix("unix://"));
    text.map_or_else(|| address.to_owned(), PathBuf::from)
}

fn print_pulled(pulled: &Pulled) {
    let mut rows = vec![text::row(["LAYER", "SIZE", "FETCHED", ""])];
    for layer in &pulled.layers {
        rows.push(vec![
            layer.layer.short(),
            text::size(layer.size),
            text::size(layer.fetched),
            state(layer),
        ]);
    }
    out!("{}", text::table(&rows));
    outln!("{}: {}", pulled.name, pulled.target);
}

fn state(layer: &PulledLayer) -> String {
    match &layer.unpacked_because {
        _ if layer.is_lazy => "lazy".to_owned(),
        Some(because) => format!("NOT LAZY: {because}"),
        None => "was there, unpacked".to_owned(),
    }
}
