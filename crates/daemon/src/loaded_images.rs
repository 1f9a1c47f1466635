//! Runtime images that are being loaded, or were, by the views for which they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use xebec_fill::fill_service::FillService;
use xebec_fill::page_set::PageSet;
use xebec_protocol::wire::Loaded;
use xebec_recordings::load::Loader;

use crate::start_facts::Recorded;

/// How long a query waits for a load that still runs.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// The message about it then.
pub(crate) const STILL_COMING: &str = "it was still coming";

/// A runtime image that was loaded, or could not be.
#[derive(Clone, Debug)]
pub(crate) struct LoadedImage {
    /// The result of loading.
    pub(crate) loaded: Loaded,
    /// The recording with its pages before and after, if it was used.
    pub(crate) recorded: Option<Recorded>,
}

/// Tells the result of loading, once it is known.
pub(crate) type Outcome = watch::Receiver<Option<LoadedImage>>;

/// A runtime image that is being loaded, or was, or may not be.
pub(crate) struct Loading {
    /// The pages that a view may reach by bypass devices once they are there.
    pub(crate) free: PageSet,
    /// The loader that brings them, if there is one.
    pub(crate) loader: Option<Arc<Loader>>,
    /// The pages that the recording names, as far as they are known before it is loaded.
    pub(crate) recorded: Option<Recorded>,
    pub(crate) outcome: Outcome,
    pub(crate) task: Option<EndedWithIt>,
}

impl Loading {
    pub(crate) fn refused(reason: String) -> Self {
        let image = LoadedImage {
            loaded: Loaded::refused(reason),
            recorded: None,
        };
        Self {
            free: PageSet::default(),
            loader: None,
            recorded: None,
            outcome: watch::channel(Some(image)).1,
            task: None,
        }
    }

    /// Its pages, in the parts in which they come; one if they are all there.
    pub(crate) fn parts(&self, fills: &FillService) -> Vec<PageSet> {
        match &self.loader {
            Some(loader) if !fills.have(&self.free) => loader.parts(&self.free),
            _ => vec![self.free.clone()],
        }
    }
}

/// A task that goes on for nobody once this is gone.
pub(crate) struct EndedWithIt(pub(crate) AbortHandle);

impl Drop for EndedWithIt {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A runtime image that a start waits for, if it does.
#[derive(Clone)]
pub(crate) struct Pending {
    /// The pages that its recording names, if it is used.
    pub(crate) recorded: Option<Recorded>,
    /// The result of loading, once it is known.
    pub(crate) outcome: Outcome,
}

/// The loads for each view, as long as the view is there: without a view, a load serves nobody.
#[derive(Default)]
pub(crate) struct Loadings(Mutex<Table>);

type Table = HashMap<String, Vec<(Outcome, Option<EndedWithIt>)>>;

impl Loadings {
    pub(crate) fn note(&self, view: &str, outcome: Outcome, task: Option<EndedWithIt>) {
        let mut table = self.0.lock();
        let known = table.entry(view.to_owned()).or_default();
        known.retain(|(outcome, _)| outcome.borrow().is_none());
        known.push((outcome, task));
    }

    /// The result of the load for the last start on a view, if it is known soon; `None` if nothing was to be loaded.
    pub(crate) async fn of(&self, view: &str) -> Option<Loaded> {
        let mut outcome = self.0.lock().get(view)?.last()?.0.clone();
        let known = tokio::time::timeout(SOON, outcome.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(image)) => image.as_ref().map(|image| image.loaded.clone()),
            _ => Some(Loaded::refused(STILL_COMING.to_owned())),
        }
    }

    /// Forgets all but those of these views.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.0.lock().retain(|view, _| keep(view));
    }
}
