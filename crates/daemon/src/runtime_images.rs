//! Runtime images on their way: while the pages come, the view is mounted and the container made.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};
use xebec_cache::store::{LayerKey, Store};
use xebec_fill::fill_service::FillService;
use xebec_fill::page_set::PageSet;
use xebec_fill::unverified_sources::{self, Injection};
use xebec_images::background_write::BackgroundWrite;
use xebec_images::prepare::PreparedImage;
use xebec_oci::Reference;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::Loaded;
use xebec_recordings::find::FoundRecording;
use xebec_recordings::load::{Loader, Target};
use xebec_recordings::local_read_ahead;
use xebec_recordings::prepare::Begun;
use xebec_recordings::zone::{ZoneSource, ZoneStream};
use xebec_views::recording_admission::Injecting;
use xebec_views::views::Views;

use crate::background::Background;
use crate::held_view::HeldView;
use crate::injections::Injections;
use crate::loaded_images::{EndedWithIt, LoadedImage, Loading, Loadings, Pending};
use crate::prefill::prefill;
use crate::start_facts::Recorded;

/// How often it is looked whether a part of the pages is there, even if nothing came by this start: others may bring it.
const LOOK: Duration = Duration::from_millis(10);

/// Layers that a recording's pages may be written into.
fn incomplete_layers(loader: &Loader) -> Vec<LayerKey> {
    loader
        .writable()
        .filter(|target| !target.served.layer().is_complete())
        .map(|target| target.served.layer().key())
        .collect()
}

/// Brings the pages of a recording while a start goes on.
struct LoadTask {
    images: Arc<RuntimeImages>,
    image: Reference,
    loader: Arc<Loader>,
    targets: Vec<Target>,
    source: ZoneSource,
    found: Arc<FoundRecording>,
    injection: Injection,
    /// Pages that were here before.
    before: PageSet,
    told: watch::Sender<Option<LoadedImage>>,
}

impl LoadTask {
    fn give_up(&self, failure: &Failure) {
        warn!("{}: {failure}; nothing is brought in", self.image);
        self.loader.give_up();
        self.told.send_replace(Some(LoadedImage {
            loaded: Loaded::refused(failure.to_string()),
            recorded: None,
        }));
    }

    /// Brings the pages that this service needs, then those that other services of the image need.
    async fn load(self, open: Option<ZoneStream>) {
        let loaded = self.loader.load(open).await;
        for target in &self.targets {
            self.images.fills.silence_if_complete(&target.served);
        }
        info!(
            image = %self.image,
            pages = loaded.pages,
            missing = loaded.missing,
            injected = loaded.injected,
            bytes = loaded.bytes,
            requests = loaded.requests,
            ms = loaded.milliseconds,
            "runtime image loaded"
        );
        let recorded = Recorded::new(&self.found, &self.before, &self.loader.free_pages());
        self.told.send_replace(Some(LoadedImage {
            loaded,
            recorded: Some(recorded),
        }));
        for service in self.found.rest.clone() {
            let other = FoundRecording {
                service,
                rest: Vec::new(),
                ..(*self.found).clone()
            };
            let loader = Arc::new(Loader::new(self.source.clone(), Arc::new(other), &self.targets));
            let followed = self.images.follow(&self.image, &loader, self.injection.clone());
            if let Err(failure) = followed.await {
                return warn!(
                    "{}: what other services need is not brought in: {failure}",
                    self.image
                );
            }
        }
    }
}

/// Loads runtime images.
pub(crate) struct RuntimeImages {
    pub(crate) store: Arc<Store>,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) injections: Arc<Injections>,
    pub(crate) loadings: Arc<Loadings>,
    pub(crate) background: Background,
}

impl RuntimeImages {
    /// Begins to load the runtime image of a service; `None` when there is no recording of it.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        prepared: &PreparedImage,
        recording: Option<Result<Begun, String>>,
    ) -> Result<Option<Loading>, Failure> {
        match recording {
            Some(Ok(begun)) => self.load_recording(prepared, begun).await.map(Some),
            Some(Err(refused)) => {
                warn!("{}: {refused}", prepared.found.reference);
                Ok(Some(Loading::refused(refused)))
            }
            None => Ok(None),
        }
    }

    async fn load_recording(
        self: &Arc<Self>,
        prepared: &PreparedImage,
        begun: Begun,
    ) -> Result<Loading, Failure> {
        let Begun {
            found,
            source,
            open,
            keeping,
            turn,
        } = begun;
        let targets = self.targets(prepared)?;
        let loader = Arc::new(Loader::new(source.clone(), found.clone(), &targets));
        self.read_ahead(&targets, loader.free_pages());
        let injection = Injection {
            recording: found.name,
            evidence: found.evidence.clone(),
        };
        let keys = incomplete_layers(&loader);
        let injecting = self.injections.begin(keys, &found.evidence).await?;
        let noting = self.note(&injecting, injection.clone());
        let before = loader.free_pages();
        let free = loader.allow(injecting);
        // Another start of the same image now sees the pages that are in flight.
        drop(turn);
        let (told, outcome) = watch::channel(None);
        let recorded = Recorded::new(&found, &before, &before);
        let task = LoadTask {
            images: self.clone(),
            image: prepared.found.reference.clone(),
            loader: loader.clone(),
            targets,
            source,
            found,
            injection,
            before,
            told,
        };
        let task = tokio::spawn(async move {
            // Before the first page is written, the evidence for it is noted, and the name by which it could be distrusted.
            let noted = async {
                keeping.end().await?;
                noting.end().await
            };
            match noted.await {
                Ok(()) => task.load(open).await,
                Err(failure) => task.give_up(&failure),
            }
        });
        Ok(Loading {
            free,
            loader: Some(loader),
            recorded: Some(recorded),
            outcome,
            task: Some(EndedWithIt(task.abort_handle())),
        })
    }

    /// The layers of an image, served, as a recording's pages go into them.
    fn targets(&self, prepared: &PreparedImage) -> Result<Vec<Target>, Failure> {
        let targets = prepared.layers.iter().map(|layer| {
            Ok(Target {
                served: self.fills.serve(layer.key, Some(&layer.index))?,
                root: layer.root,
            })
        });
        targets.collect()
    }

    /// Brings in the pages that another service of the image needs, after those of the service for which its view was made: it is
    /// not known yet which of them will run. Nobody waits for this.
    async fn follow(
        self: &Arc<Self>,
        image: &Reference,
        loader: &Arc<Loader>,
        injection: Injection,
    ) -> Result<(), Failure> {
        let keys = incomplete_layers(loader);
        let injecting = self.injections.begin(keys, &injection.evidence).await?;
        // Again: the first service may not have been allowed to bring pages into all of these layers.
        self.note(&injecting, injection).end().await?;
        loader.allow(injecting);
        let loaded = loader.load(None).await;
        info!(
            %image,
            pages = loaded.pages,
            missing = loaded.missing,
            injected = loaded.injected,
            "what another service of the image needs has followed"
        );
        Ok(())
    }

    /// Notes which recording brings pages into these layers.
    fn note(&self, injecting: &Injecting, injection: Injection) -> BackgroundWrite {
        let (store, keys) = (self.store.clone(), injecting.layers().to_vec());
        let fills = self.fills.clone();
        let has_unverified = move |key| {
            let served = fills.find(key);
            served.is_none_or(|served| served.layer().has_unverified())
        };
        BackgroundWrite::begin(move || unverified_sources::add(&store, &keys, &injection, has_unverified))
    }

    /// Has the pages that are here already brought into memory, while the start goes on.
    fn read_ahead(&self, targets: &[Target], present: PageSet) {
        let layers: Vec<_> = targets.iter().map(|target| target.served.clone()).collect();
        tokio::task::spawn_blocking(move || {
            for (key, runs) in present.layers() {
                let served = layers.iter().find(|served| served.layer().key() == key);
                if let Some(served) = served {
                    local_read_ahead::ask(served.layer(), runs);
                }
            }
        });
    }

    /// Takes the guard off each part of a view's start-up pages once all of it is there; if some pages never come, it stays.
    /// The pages that are there are brought into the view's page cache, if the view is to be prefilled.
    pub(crate) fn finish(self: &Arc<Self>, view: &HeldView, mut loading: Loading, prefills: bool) -> Pending {
        let pending = Pending {
            recorded: loading.recorded.take(),
            outcome: loading.outcome.clone(),
        };
        self.loadings
            .note(&view.name, loading.outcome.clone(), loading.task.take());
        let prefill = prefills.then(|| prefill(&self.views, &self.background, view, &loading.free));
        let prefill = prefill.flatten();
        let (this, view) = (self.clone(), view.name.clone());
        // The loader itself would keep readers waiting for pages that nobody brings any more.
        let more = loading.loader.take().and_then(|loader| loader.subscribe());
        let mut outcome = loading.outcome;
        let mut coming = self.views.arriving(&view);
        let is_there = move |pages: Arc<PageSet>| prefill.as_ref().map(|prefill| prefill.send(pages));
        let apart = coming
            .iter()
            .fold(loading.free, |there, (_, pages)| there.without(pages));
        if !apart.is_empty() {
            is_there(Arc::new(apart));
        }
        tokio::spawn(async move {
            let mut look = || {
                coming.retain(|(mount, pages)| {
                    let are_there = this.fills.have(pages);
                    if are_there
                        && this
                            .views
                            .arrived(&view, mount, |mount| this.fills.unguard(mount))
                    {
                        is_there(pages.clone());
                    }
                    !are_there
                });
                !coming.is_empty()
            };
            if let Some(mut more) = more {
                let mut is_coming = true;
                while is_coming && look() {
                    let told = tokio::time::timeout(LOOK, more.changed()).await;
                    is_coming = !matches!(told, Ok(Err(_)));
                }
            }
            let _ = outcome.wait_for(Option::is_some).await;
            look();
        });
        pending
    }
}
