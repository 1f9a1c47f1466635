//! `xebec-registry serve`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use xebec_access::Guard;
use xebec_events::Gone;
use xebec_events::audit::Audit;
use xebec_events::webhooks::Webhooks;
use xebec_indexing::Indexer;
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_policy::quota::Quotas;
use xebec_registry_server::config::Config;
use xebec_registry_server::copies::{Copies, Heard};
use xebec_registry_server::deduplication;
use xebec_registry_server::mode_file::ModeFile;
use xebec_registry_server::server::{Server, TlsSettings};
use xebec_registry_server::state::Registry;
use xebec_registry_server::upkeep::{Tidied, Upkeep};
use xebec_replication::Rules;
use xebec_store::{CollectOptions, PlaceConfig, Store};
use xebec_upstream::Upstreams;

use crate::args::Serve;
use crate::{logging, mirror};

/// Pulls are written down this often, and when the server ends.
const PULLS_WRITTEN_EACH: Duration = Duration::from_secs(60);

/// The time for what waits in queues when requests have used up the time for ending.
const LEAST_TO_FINISH: Duration = Duration::from_secs(5);

/// Serves until a signal ends it.
pub(crate) fn serve(args: &Serve, verbose: u8) -> anyhow::Result<()> {
    let mut config = crate::program::configured(&args.place)?;
    if !args.listen.is_empty() {
        config.server.listen.clone_from(&args.listen);
    }
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        config.server.tls = Some(TlsSettings {
            certificate: certificate.clone(),
            key: key.clone(),
        });
    }
    logging::start(verbose, config.log_format);
    allow_files();
    crate::program::carry_out(run(config, args.place.config.clone()))
}

async fn run(config: Config, file: Option<PathBuf>) -> anyhow::Result<()> {
    let (store, restorer) = deduplication::open_to_serve(&config.store, &config.deduplication).await?;
    let mut registry = Registry::new(store.clone());
    registry.settings = config.api.clone();
    registry.deduplicates = config.deduplication.enabled;
    registry.cutting = config.deduplication.chunks;
    registry.restorer = Some(restorer.clone());
    let arrived = Arc::new(Notify::new());
    registry.immutability = config.immutability.clone();
    registry.quotas = Quotas::new(config.quotas.clone());
    registry.mode = ModeFile::new(config.store.root.join("mode"), config.mode.clone());
    look_elsewhere(&mut registry, &config, &arrived)?;
    protect(&mut registry, &config)?;
    let copies = keep_copies(&mut registry, &config);
    if restorer.works_ahead() {
        let ahead = deduplication::Ahead::new(store.clone(), restorer.clone());
        registry.listeners.push(ahead);
    }
    let registry = Arc::new(registry);
    let places = config.store.places.clone();
    let (reports, drain) = (registry.reports.clone(), config.server.drain);
    let mirrors = mirror::configured(&config, &store)?;
    let server = Server::listen(registry.clone(), config.server.clone()).await?;
    let scheme = if server.is_safe() { "https" } else { "http" };
    for address in server.addresses() {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), root = %config.store.root.display(), "serving at {scheme}://{address}");
    }
    let reload = server.reloader();
    tokio::spawn(reload_on_hangup(
        signal(SignalKind::hangup())?,
        reload,
        (copies, file, places),
    ));
    mirror::schedule(mirrors, &registry, &arrived);
    if !config.collect_every.is_zero() {
        let upkeep = Upkeep::new(&store, &config);
        tokio::spawn(collect(registry, upkeep, config.collect_every));
    }
    tokio::spawn(write_pulls(store.clone()));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut begun = Instant::now();
    let ended = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("ending: finishing what is under way; a second signal breaks it off");
        tokio::spawn(end_at_once(terminate, interrupt));
        begun = Instant::now();
    };
    server.serve(ended).await?;
    let left = drain.saturating_sub(begun.elapsed());
    reports.finish(left.max(LEAST_TO_FINISH)).await;
    if let Err(error) = store.write_pulls().await {
        tracing::warn!("when manifests were pulled last is not written down: {error}");
    }
    tracing::info!("ended");
    Ok(())
}

/// Has the registry fetch what others have, and index what comes.
fn look_elsewhere(registry: &mut Registry, config: &Config, arrived: &Arc<Notify>) -> anyhow::Result<()> {
    let environment = |name: &str| std::env::var(name).ok();
    let upstreams = Upstreams::new(&config.upstreams, &registry.store, arrived, environment)?;
    registry.upstreams = upstreams.keeping(&mirror::rules(config).immutable);
    if config.indexing.enabled {
        let (store, upstreams) = (registry.store.clone(), registry.upstreams.clone());
        let indexer = Indexer::new(&config.indexing, store, upstreams, arrived.clone())?;
        let indexer = Arc::new(indexer.within(registry.surroundings()));
        registry.listeners.push(indexer.clone());
        tokio::spawn(indexer.run());
    }
    Ok(())
}

/// Has copies of blobs where the rules want them, and blobs taken apart in the form that the rules want.
fn keep_copies(registry: &mut Registry, config: &Config) -> Arc<Copies> {
    let rules = Rules::new(config.copies.clone());
    let copies = Copies::within(registry, rules.clone());
    registry.listeners.push(Heard::by(copies.clone()));
    tokio::spawn(copies.clone().run());
    if config.deduplication.enabled {
        let background = deduplication::Background::within(registry, &config.deduplication, Some(rules));
        registry.listeners.push(background.clone());
        tokio::spawn(background.run());
    }
    copies
}

/// Has the registry recognize callers, write down what they do, and tell others of it.
fn protect(registry: &mut Registry, config: &Config) -> anyhow::Result<()> {
    match &config.auth {
        Some(auth) => {
            registry.guard = Guard::new(auth.clone(), &config.store.root, config.server.tls.is_some())?
        }
        None => tracing::warn!("everybody may do everything: the configuration has no [auth]"),
    }
    if let Some(settings) = &config.audit {
        let audit = Audit::open(settings)?;
        registry.guard = registry.guard.clone().observed_by(audit.clone());
        registry.listeners.push(audit.clone());
        registry.reports.audit = Some(audit);
    }
    if !config.webhooks.is_empty() {
        let instance = config.server.listen.join(",");
        let webhooks = Webhooks::start(&config.webhooks, &instance)?;
        registry.listeners.push(webhooks.clone());
        registry.reports.webhooks = Some(webhooks);
    }
    Ok(())
}

async fn end_at_once(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    std::process::exit(1);
}

async fn reload_on_hangup(
    mut hangup: Signal,
    reload: xebec_registry_server::server::Reloader,
    (copies, file, places): (Arc<Copies>, Option<PathBuf>, Vec<PlaceConfig>),
) {
    while hangup.recv().await.is_some() {
        match file.as_deref().map(Config::read) {
            None => {}
            Some(Ok(config)) if config.store.places != places => {
                tracing::warn!(
                    "keeping the rules for copies as they were, since other places are configured: start the registry again"
                );
            }
            Some(Ok(config)) => copies.set_rules(config.copies),
            Some(Err(error)) => tracing::warn!("keeping the rules for copies as they were: {error}"),
        }
        match reload.reload() {
            Ok(()) => tracing::info!("read the certificate again"),
            Err(error) => tracing::warn!("keeping the certificate as it was: {error}"),
        }
    }
}

/// Writes down when manifests were pulled: not at each pull, which would write to the disk for each.
async fn write_pulls(store: Store) {
    loop {
        tokio::time::sleep(PULLS_WRITTEN_EACH).await;
        if let Err(error) = store.write_pulls().await {
            tracing::warn!("when manifests were pulled last is not written down: {error}");
        }
    }
}

/// Deletes what the rules let go and collects what nothing refers to, each time after a pause.
async fn collect(registry: Arc<Registry>, upkeep: Upkeep, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if !registry.mode.is_normal() {
            tracing::info!("nothing is collected while nothing may be written");
            continue;
        }
        tidy(&registry, &upkeep).await;
        let collected = registry.store.collect(&CollectOptions::default()).await;
        registry.metrics.collected(collected.as_ref().ok());
        match collected {
            Ok(collected) => tracing::info!(?collected, "collected what nothing refers to"),
            Err(error) => tracing::error!("collecting what nothing refers to: {error}"),
        }
    }
}

/// Deletes what the rules let go.
async fn tidy(registry: &Registry, upkeep: &Upkeep) {
    let mut report = |gone: &Gone| {
        let (repository, digest, why) = (&gone.repository, &gone.digest, &gone.why);
        tracing::info!(repository, digest, what = ?gone.what, "deleted: {why}");
        for listener in &registry.listeners {
            listener.let_go(gone);
        }
    };
    match upkeep.run(false, milliseconds_since_1970(), &mut report).await {
        Ok(tidied) if tidied != Tidied::default() => tracing::info!(?tidied, "deleted what the rules let go"),
        Ok(_) => {}
        Err(error) => tracing::error!("deleting what the rules let go: {error}"),
    }
}

/// Each connection is an open file, and so is each blob that is read; most systems begin with 1,024.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the number of open files: {error}");
    }
}
