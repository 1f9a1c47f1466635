//! Asks a registry of Xebec to answer a start in advance (docs/formats/native-service.md): everything that a start asks for comes by one
//! request then. What this host holds is told only to registries that `registries.toml` lists for that.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::warn;
use xebec_cache::store::Store;
use xebec_format::digest::Digest;
use xebec_native::runs::PageRuns;
use xebec_native::start_request::{HeldLayer, MAX_LAYERS, StartRequest, WantedService, WordHash};
use xebec_oci::{Client, NativeService, NoAnswers, Platform, Reference};
use xebec_protocol::wire::ServiceCommand;

use crate::images::Images;
use crate::referrers::{ConfigCarriers, Referrers};

/// How long it may take to look what this host holds. What is not told is sent though it is here, so a start must not wait long for it.
const LOOKING: Duration = Duration::from_millis(10);

/// A service that is started, of an image that is still to be found.
pub struct Starting<'a> {
    /// What may carry the image's configuration.
    pub carriers: ConfigCarriers<'a>,
    /// The command line of the service.
    pub command: &'a ServiceCommand,
}

/// What a registry was asked for on the way to an image, for the questions that follow.
#[derive(Default)]
pub struct OnTheWay {
    /// What refers to the image.
    pub referrers: Option<Referrers>,
    /// A client with answers in advance, if there are any.
    pub client: Option<Client>,
}

/// What this host holds, as far as a registry may know.
struct Held {
    /// Whether pages may be wanted: the registry knows which are here, or none are.
    may_want_pages: bool,
    layers: BTreeMap<Digest, HeldLayer>,
}

/// What became of asking a registry for answers in advance.
pub(crate) enum Asked {
    /// It is not known to give them.
    No,
    /// This client has them.
    Answered(Client),
    /// It refused the image. If the plain way does not, it is not asked again for a while.
    Refused(NativeService),
    /// There are none.
    InVain,
}

impl Images {
    /// A client whose calls are answered in advance, if the registry does that. `layers` are those of the image, where they are known.
    /// It does not wait longer than `time`, if that is given.
    pub(crate) async fn ask_in_advance(
        &self,
        client: &Client,
        reference: &Reference,
        platform: &Platform,
        layers: Option<Vec<Digest>>,
        command: &ServiceCommand,
        time: Option<Duration>,
    ) -> Asked {
        let Some(service) = client.native_service(reference.repository()) else {
            return Asked::No;
        };
        let (store, may_be_told) = (self.store.clone(), service.may_be_told());
        let looked = tokio::task::spawn_blocking(move || Held::look(&store, may_be_told, layers));
        let Ok(held) = looked.await else {
            return Asked::InVain;
        };
        let request = StartRequest {
            reference: reference.manifest_name(),
            platform: platform.to_string(),
            service: held.may_want_pages.then(|| wanted(command)),
            held: held.layers,
        };
        match service.ask(request, time).await {
            Ok(client) => Asked::Answered(client),
            Err(NoAnswers::Refused) => Asked::Refused(service),
            Err(NoAnswers::Other) => Asked::InVain,
        }
    }
}

/// The service without its words.
fn wanted(command: &ServiceCommand) -> WantedService {
    let hashed = |words: &[String]| words.iter().map(|word| WordHash::of(word)).collect();
    WantedService {
        entrypoint: command.entrypoint.as_deref().map(hashed),
        command: hashed(&command.command),
        is_said_later: command.is_said_later,
    }
}

impl Held {
    /// Blocks.
    fn look(store: &Store, may_be_told: bool, layers: Option<Vec<Digest>>) -> Self {
        match may_be_told {
            true => Self {
                may_want_pages: true,
                layers: told(store, layers.as_deref()),
            },
            false => Self {
                may_want_pages: !holds_any(store, layers.as_deref()),
                layers: BTreeMap::new(),
            },
        }
    }
}

/// Whether any of these layers is here, or any layer at all.
fn holds_any(store: &Store, layers: Option<&[Digest]>) -> bool {
    match layers {
        Some(layers) => layers.iter().any(|layer| !store.indexes_of(*layer).is_empty()),
        // If it cannot be told, some may be.
        None => store.holds_any().unwrap_or(true),
    }
}

/// The layers that are here, by the index that each was used by last, with their pages.
fn told(store: &Store, layers: Option<&[Digest]>) -> BTreeMap<Digest, HeldLayer> {
    let begun = Instant::now();
    let keys = store.recently_used().unwrap_or_else(|error| {
        warn!("{error}");
        Vec::new()
    });
    let mut told = BTreeMap::new();
    for key in keys {
        if told.len() >= MAX_LAYERS || begun.elapsed() >= LOOKING {
            break;
        }
        let is_asked = layers.is_none_or(|layers| layers.contains(&key.layer));
        if !is_asked || told.contains_key(&key.layer) {
            continue;
        }
        if let Some(pages) = store.held_pages(key) {
            let layer = HeldLayer {
                index: key.index,
                pages: PageRuns::new(pages),
            };
            told.insert(key.layer, layer);
        }
    }
    told
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests;
