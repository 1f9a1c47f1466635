//! `xebec-registry scrub`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use xebec_kernel::size;
use xebec_registry_server::config::{Config, LogFormat};
use xebec_registry_server::deduplication;
use xebec_store::{Digest, RepositoryName, ScrubOptions, Scrubbed, Store};
use xebec_upstream::Upstreams;

use crate::args::Scrub;
use crate::logging;
use crate::progress::Progress;

/// So many repositories are named, and asked for an upstream, of each blob.
const REPOSITORIES: usize = 64;

/// A blob that is not as it should be, and what became of it.
struct Damage {
    digest: Digest,
    is_missing: bool,
    repositories: Vec<RepositoryName>,
    /// The upstream that has given it again.
    mended: Option<String>,
    /// Why an upstream did not.
    failure: Option<String>,
}

/// Reads everything again.
pub(crate) fn scrub(args: &Scrub, verbose: u8) -> anyhow::Result<ExitCode> {
    let config = crate::program::configured(&args.place)?;
    logging::start(verbose, LogFormat::Text);
    let options = ScrubOptions {
        bytes_per_second: args.rate.map(|rate| rate.0),
        not_within: args.not_within.map(|time| time.0).unwrap_or_default(),
    };
    crate::program::carry_out(async {
        let store = deduplication::open(&config.store, &config.deduplication).await?;
        // Whether they can be asked is said before hours of reading, not after them.
        let upstreams = match args.no_mend {
            true => Upstreams::default(),
            false => upstreams(&store, &config)?,
        };
        let all = size::for_people(store.usage("").await?.bytes);
        let mut progress = Progress::new();
        let report = |so_far: &Scrubbed| {
            let (read, bad) = (
                size::for_people(so_far.bytes),
                so_far.damaged.len() + so_far.missing.len(),
            );
            progress.say(format_args!(
                "reading: {} blobs, {read} of about {all}, {bad} are damaged",
                so_far.blobs
            ));
        };
        let scrubbed = store.scrub(&options, report).await?;
        drop(progress);
        let damages = damages(&store, &upstreams, &scrubbed).await?;
        match args.json {
            true => outln!("{}", as_json(&scrubbed, &damages)),
            false => say(&scrubbed, &damages),
        }
        let is_sound = scrubbed.unreadable.is_empty()
            && scrubbed.damaged_pieces == 0
            && scrubbed.damaged_replicas == 0
            && scrubbed.damaged_manifests.is_empty()
            && damages.iter().all(|damage| damage.mended.is_some());
        Ok(match is_sound {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(crate::program::DAMAGED),
        })
    })
}

fn upstreams(store: &Store, config: &Config) -> anyhow::Result<Upstreams> {
    let environment = |name: &str| std::env::var(name).ok();
    let upstreams = Upstreams::new(&config.upstreams, store, &Arc::new(Notify::new()), environment);
    upstreams.context("cannot ask upstreams for what is damaged; --no-mend scrubs without them")
}

/// The damaged and missing blobs, each with the repositories that have it, and with the outcome of fetching it from an upstream again.
async fn damages(store: &Store, upstreams: &Upstreams, scrubbed: &Scrubbed) -> anyhow::Result<Vec<Damage>> {
    let wrong = scrubbed.damaged.iter().map(|digest| (digest, false));
    let missing = scrubbed.missing.iter().map(|digest| (digest, true));
    let mut damages = Vec::new();
    for (digest, is_missing) in wrong.chain(missing) {
        let mut damage = Damage {
            digest: digest.clone(),
            is_missing,
            repositories: store.repositories_with(digest, REPOSITORIES).await?,
            mended: None,
            failure: None,
        };
        for repository in &damage.repositories {
            let Some(upstream) = upstreams.of(repository) else {
                continue;
            };
            match upstream.bring(repository, digest).await {
                Ok(_) => {
                    damage.mended = Some(upstream.registry().to_owned());
                    break;
                }
                Err(error) => damage.failure = Some(error.to_string()),
            }
        }
        damages.push(damage);
    }
    Ok(damages)
}

impl Damage {
    fn state(&self) -> &'static str {
        match self.is_missing {
            true => "is missing",
            false => "has wrong bytes",
        }
    }

    /// The outcome of mending it, or the next step, for people.
    fn advice(&self) -> String {
        if let Some(registry) = &self.mended {
            return format!("{registry} has given it again");
        }
        let names: Vec<&str> = self.repositories.iter().map(RepositoryName::as_str).collect();
        if names.is_empty() {
            return "no repository has it, and a collection takes it".to_owned();
        }
        let push = format!("push an image that has it to {} again", names.join(" or "));
        match &self.failure {
            Some(failure) => {
                format!("its upstream did not give it again ({failure}); pull it through later, or {push}")
            }
            None => format!("it counts as absent until then: {push}"),
        }
    }
}

fn say(scrubbed: &Scrubbed, damages: &[Damage]) {
    for damage in damages {
        outln!("{}  {}; {}", damage.digest, damage.state(), damage.advice());
    }
    for (digest, why) in &scrubbed.unreadable {
        outln!(
            "{digest}  cannot be read, which says nothing of its bytes: {why}; see to the disk or the object store, and scrub again"
        );
    }
    for digest in &scrubbed.damaged_manifests {
        outln!(
            "{digest}  is a manifest with other bytes than its digest says: the database is damaged. Push the manifest again, or restore a backup"
        );
    }
    say_pieces(scrubbed);
    let bad = damages.len() + scrubbed.unreadable.len() + scrubbed.damaged_manifests.len();
    let bad = bad as u64 + scrubbed.damaged_pieces + scrubbed.damaged_replicas;
    outln!(
        "read {} blobs, {} packs and recipes{} and {} manifests, {}{}: {}",
        scrubbed.blobs,
        scrubbed.pieces,
        match scrubbed.replicas {
            0 => String::new(),
            copies => format!(", {copies} copies on other places"),
        },
        scrubbed.manifests,
        size::for_people(scrubbed.bytes),
        match (scrubbed.restored, scrubbed.not_restored) {
            (0, 0) => String::new(),
            (restored, 0) => format!(", and restored {restored} blobs from packs and recipes"),
            (restored, not) => {
                format!(
                    ", and restored {restored} blobs from packs and recipes, but not {not} others, which this program cannot restore"
                )
            }
        },
        match bad {
            0 => "nothing is wrong".to_owned(),
            bad => format!(
                "{bad} are not as they should be, and {} of these are mended",
                damages.iter().filter(|damage| damage.mended.is_some()).count()
            ),
        }
    );
}

/// Of packs, recipes and copies on other places.
fn say_pieces(scrubbed: &Scrubbed) {
    if scrubbed.damaged_pieces > 0 {
        outln!(
            "{} packs or recipes have wrong bytes or none: blobs that were kept by them alone are damaged, and the others are taken apart again",
            scrubbed.damaged_pieces
        );
    }
    if scrubbed.mended > 0 {
        outln!(
            "{} blobs, packs or recipes had wrong bytes or none, and have right ones again from another place",
            scrubbed.mended
        );
    }
    if scrubbed.damaged_replicas > 0 {
        outln!(
            "{} copies on other places have wrong bytes or none; `serve` makes them again",
            scrubbed.damaged_replicas
        );
    }
}

fn as_json(scrubbed: &Scrubbed, damages: &[Damage]) -> Value {
    let blobs: Vec<Value> = damages
        .iter()
        .map(|damage| {
            json!({
                "digest": damage.digest.to_string(),
                "missing": damage.is_missing,
                "repositories": damage.repositories.iter().map(RepositoryName::as_str).collect::<Vec<_>>(),
                "mended_from": damage.mended,
                "advice": damage.advice(),
            })
        })
        .collect();
    let unreadable: Vec<Value> = scrubbed
        .unreadable
        .iter()
        .map(|(digest, why)| json!({"digest": digest.to_string(), "reason": why}))
        .collect();
    let manifests: Vec<String> = scrubbed.damaged_manifests.iter().map(Digest::to_string).collect();
    json!({
        "blobs": scrubbed.blobs,
        "packs_and_recipes": scrubbed.pieces,
        "damaged_packs_and_recipes": scrubbed.damaged_pieces,
        "copies_on_other_places": scrubbed.replicas,
        "damaged_copies_on_other_places": scrubbed.damaged_replicas,
        "mended_from_other_places": scrubbed.mended,
        "restored": scrubbed.restored,
        "not_restored": scrubbed.not_restored,
        "manifests": scrubbed.manifests,
        "bytes": scrubbed.bytes,
        "damaged": blobs,
        "unreadable": unreadable,
        "damaged_manifests": manifests,
    })
}
