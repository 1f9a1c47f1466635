//! `xebec-registry mirror`, and the mirrors that a registry makes while it serves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::sync::Notify;
use xebec_registry_server::config::{Config, LogFormat};
use xebec_registry_server::deduplication;
use xebec_registry_server::state::Registry;
use xebec_store::Store;
use xebec_transfer::{Mirror, MirrorSettings, Rules, Tally};

use crate::args::Mirror as Arguments;
use crate::{logging, moved};

/// A server that has just started answers its clients first.
const FIRST: Duration = Duration::from_secs(10);
/// So many of those that were skipped are named in the log of one run.
const NAMED: usize = 20;

/// Copies once, and says what came of it.
pub(crate) fn mirror(args: &Arguments, verbose: u8) -> anyhow::Result<()> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    let all = match &args.source {
        Some(source) => vec![settings(source, args)],
        None => config.mirrors.clone(),
    };
    if all.is_empty() {
        bail!("there is nothing to copy: name a SOURCE, or write a [[mirror]] into the configuration");
    }
    crate::program::carry_out(async {
        let store = deduplication::open(&config.store, &config.deduplication).await?;
        let tally = Arc::new(Tally::default());
        let mut failed = None;
        for settings in &all {
            let mirror = Mirror::new(&store, settings, &rules(&config), environment)?;
            if let Err(error) = moved::watch(&tally, mirror.run(&tally)).await {
                errln!("xebec-registry: the mirror of {}: {error}", mirror.source());
                failed = Some(mirror.source().to_owned());
            }
        }
        moved::report(&tally, args.json, false);
        if let Some(source) = failed {
            bail!("the mirror of {source} is not complete");
        }
        moved::verdict(&tally)
    })
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn settings(source: &str, args: &Arguments) -> MirrorSettings {
    let usual = MirrorSettings::new(source);
    MirrorSettings {
        repositories: args.repositories.clone(),
        tags: args.tags.clone(),
        to: args.to.clone().unwrap_or_default(),
        plain_http: args.plain_http,
        ca_file: args.ca_file.clone(),
        username: args.username.clone(),
        password_env: args.password_env.clone(),
        docker_config: args.docker_config.clone(),
        rate: args.rate.map(|rate| rate.0),
        jobs: args.jobs.unwrap_or(usual.jobs),
        prune: args.prune,
        ..usual
    }
}

/// The rules that the configuration has for pushes.
pub(crate) fn rules(config: &Config) -> Rules {
    let immutability = config.immutability.clone();
    Rules {
        sparse: config.api.sparse,
        immutable: Arc::new(move |repository, tag| {
            immutability.rule_for(repository.as_str(), tag.as_str()).is_some()
        }),
    }
}

/// The mirrors of the configuration that are made again and again, with their pauses.
pub(crate) fn configured(config: &Config, store: &Store) -> anyhow::Result<Vec<(Mirror, Duration)>> {
    let mut mirrors = Vec::new();
    for settings in &config.mirrors {
        let mirror = Mirror::new(store, settings, &rules(config), environment)?;
        if let Some(every) = settings.every {
            mirrors.push((mirror, every));
        }
    }
    Ok(mirrors)
}

/// Makes them while the registry serves.
pub(crate) fn schedule(mirrors: Vec<(Mirror, Duration)>, registry: &Arc<Registry>, arrived: &Arc<Notify>) {
    for (mirror, every) in mirrors {
        let (registry, arrived) = (registry.clone(), arrived.clone());
        tokio::spawn(async move {
            tokio::time::sleep(FIRST).await;
            loop {
                match registry.mode.is_normal() {
                    true => run(&mirror, &arrived).await,
                    false => tracing::info!(
                        source = mirror.source(),
                        "no mirror is made while nothing may be written"
                    ),
                }
                tokio::time::sleep(every).await;
            }
        });
    }
}

async fn run(mirror: &Mirror, arrived: &Notify) {
    let tally = Arc::new(Tally::default());
    let outcome = mirror.run(&tally).await;
    let moved = tally.read(0);
    if moved.manifests > 0 {
        arrived.notify_one();
    }
    let source = mirror.source();
    for skipped in moved.skipped.iter().take(NAMED) {
        tracing::warn!(
            source,
            repository = skipped.repository,
            what = skipped.what,
            "not copied: {}",
            skipped.reason
        );
    }
    let (manifests, tags, blobs, bytes, skipped) = (
        moved.manifests,
        moved.tags,
        moved.blobs,
        moved.bytes,
        moved.skipped_count,
    );
    match outcome {
        Ok(()) => tracing::info!(
            source,
            manifests,
            tags,
            blobs,
            bytes,
            skipped,
            "the mirror is made"
        ),
        Err(error) => tracing::warn!(source, manifests, tags, blobs, bytes, skipped, "{error}"),
    }
}
