//! Runtime images on their way: while the pages come, the view is mounted and the container made.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tracing::{info, warn};

use crate::failure::Failure;
use crate::free::FreePages;
use crate::image::{Begun, PreparedImage};
use crate::protocol::Loaded;
use crate::runtime_image::ahead;
use crate::runtime_image::injected::{self, Injection};
use crate::runtime_image::load::{Loader, Target};
use crate::worker::requests::Requests;
use crate::worker::start_facts::Recorded;
use crate::worker::views::remove_own_mount;

/// A runtime image that was loaded, or could not be.
#[derive(Clone, Debug)]
pub(super) struct LoadedImage {
    /// What it came to.
    pub(super) loaded: Loaded,
    /// What became of which pages, if it was used.
    pub(super) recorded: Option<Recorded>,
}

/// Tells what loading came to, once that is known.
pub(super) type Outcome = watch::Receiver<Option<LoadedImage>>;

/// A runtime image that is being loaded, or was, or may not be.
pub(super) struct Loading {
    /// The pages that a view may reach by free devices once they are there.
    pub(super) free: FreePages,
    /// What brings them, if anything does.
    loader: Option<Arc<Loader>>,
    outcome: Outcome,
}

impl Loading {
    fn refused(reason: String, free: FreePages) -> Self {
        let image = LoadedImage {
            loaded: Loaded::refused(reason),
            recorded: None,
        };
        Self {
            free,
            loader: None,
            outcome: watch::channel(Some(image)).1,
        }
    }

    /// Whether all of the pages are there.
    fn is_over(&self) -> bool {
        let loader = self.loader.as_ref();
        loader.is_none_or(|loader| loader.are_there(&self.free))
    }
}

/// What loading came to, by view, as long as the view is there.
#[derive(Default)]
pub(super) struct Loadings(Mutex<HashMap<String, Outcome>>);

impl Loadings {
    fn note(&self, view: &str, outcome: Outcome) {
        self.lock().insert(view.to_owned(), outcome);
    }

    /// What the last start on a view loaded, once it is known; `None` if nothing was to be loaded.
    pub(super) async fn of(&self, view: &str) -> Option<Loaded> {
        let mut outcome = self.lock().get(view).cloned()?;
        let known = outcome.wait_for(Option::is_some).await.ok()?;
        known.as_ref().map(|image| image.loaded.clone())
    }

    /// Forgets all but those of these views.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.lock().retain(|view, _| keep(view));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Outcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requests {
    /// Begins to load the runtime image of a service; `None` when there is no recording of it.
    pub(super) async fn begin_loading(
        self: &Arc<Self>,
        prepared: &PreparedImage,
        recording: Option<Result<Begun, String>>,
    ) -> Result<Option<Loading>, Failure> {
        let Begun { found, source, open } = match recording {
            Some(Ok(begun)) => begun,
            Some(Err(refused)) => {
                warn!("{}: {refused}", prepared.found.reference);
                return Ok(Some(Loading::refused(refused, FreePages::none())));
            }
            None => return Ok(None),
        };
        let targets = prepared.layers.iter().map(|layer| {
            Ok(Target {
                served: self.fills.serve(layer.key, None)?,
                root: layer.root,
            })
        });
        let targets: Vec<Target> = targets.collect::<Result<_, Failure>>()?;
        let loader = Arc::new(Loader::new(source, found.clone(), &targets));
        self.read_ahead(&targets, loader.free_pages());
        let injection = Injection {
            recording: found.name,
            evidence: found.evidence.clone(),
        };
        let keys = loader
            .writable()
            .filter(|target| !target.served.layer().is_complete())
            .map(|target| target.served.layer().key());
        let policy = self.images.policy()?;
        let injecting = self
            .strictness
            .inject(keys, &found.evidence, || self.readers(), &policy);
        let keys = injecting.layers().to_vec();
        let noted = self.in_background(move |this| {
            keys.into_iter()
                .try_for_each(|key| injected::add(this.images.store(), key, &injection))
        });
        if let Err(failure) = noted.await? {
            warn!("{failure}; nothing is brought in");
            return Ok(Some(Loading::refused(failure.to_string(), loader.free_pages())));
        }
        let before = loader.free_pages();
        let free = loader.allow(injecting);
        let (told, outcome) = watch::channel(None);
        let (this, loading) = (self.clone(), loader.clone());
        let image = prepared.found.reference.clone();
        tokio::spawn(async move {
            let loaded = loading.load(open).await;
            for target in &targets {
                this.fills.silence_if_complete(&target.served);
            }
            info!(
                %image,
                pages = loaded.pages,
                missing = loaded.missing,
                injected = loaded.injected,
                bytes = loaded.bytes,
                requests = loaded.requests,
                ms = loaded.milliseconds,
                "runtime image loaded"
            );
            let recorded = Recorded::new(&found, &before, &loading.free_pages());
            told.send_replace(Some(LoadedImage {
                loaded,
                recorded: Some(recorded),
            }));
        });
        Ok(Some(Loading {
            free,
            loader: Some(loader),
            outcome,
        }))
    }

    /// Has the pages that are here already brought into memory, while the start goes on.
    fn read_ahead(&self, targets: &[Target], present: FreePages) {
        let layers: Vec<_> = targets.iter().map(|target| target.served.clone()).collect();
        tokio::task::spawn_blocking(move || {
            for (key, runs) in present.layers() {
                let served = layers.iter().find(|served| served.layer().key() == key);
                if let Some(served) = served {
                    ahead::ask(served.layer(), runs);
                }
            }
        });
    }

    /// The mount of the blob cache by which a view reaches its free pages: the cache itself if all of them are there,
    /// else one of its own that is guarded until they are.
    pub(super) fn free_mount(&self, view: &str, loading: Option<&Loading>) -> Result<PathBuf, Failure> {
        match loading.is_none_or(Loading::is_over) {
            true => Ok(self.images.paths.layers()),
            false => self.open_own_mount(self.images.paths.arriving_mounts().join(view)),
        }
    }

    /// Removes such a mount if the view came to be mounted without.
    pub(super) fn close_free_mount(&self, view: &str, mount: &std::path::Path) {
        if mount != self.images.paths.layers() && !self.views.arrives_by(view, mount) {
            remove_own_mount(mount);
        }
    }

    /// Takes the guard off a view's free pages once all of them are there; if some never come, it stays.
    pub(super) fn finish_loading(self: &Arc<Self>, view: &str, loading: Loading) -> Outcome {
        let outcome = loading.outcome.clone();
        self.loadings.note(view, outcome.clone());
        let (this, view) = (self.clone(), view.to_owned());
        tokio::spawn(async move {
            let mut outcome = loading.outcome.clone();
            let is_known = outcome.wait_for(Option::is_some).await.is_ok();
            if is_known && loading.is_over() {
                this.views.arrived(&view, |mount| this.fills.unguard(mount));
            }
        });
        outcome
    }
}
