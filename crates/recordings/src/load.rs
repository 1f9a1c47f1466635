//! Brings in the pages that a service touches at its start and that are missing, and puts them into the layers' data files: here is which
//! pages are wanted, which of them may be brought in, and what readers are told; `bring` brings them.
//!
//! A recording counts no further than its root of trust: it brings pages of those layers only whose index rests on
//! nothing stronger. Its pages are noted as unverified until the span that they belong to was compared
//! ([`xebec_cache::layer::CachedLayer::inject`]). An error here does not stop the start: pages that are missing then
//! come when they are read.

mod bring;

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, watch};
use tracing::warn;
use xebec_cache::store::LayerKey;
use xebec_fill::inflight_pages::Coming;
use xebec_fill::page_set::{PageSet, difference, normal};
use xebec_fill::served::ServedLayer;
use xebec_format::runtime_image::{PageRun, Recording};
use xebec_protocol::wire::Loaded;
use xebec_trust::Root;
use xebec_views::bypass_devices;
use xebec_views::recording_admission::{Injecting, Writing};

use crate::find::FoundRecording;
use crate::zone::{ZoneSource, ZoneStream};

/// How long the pages may take to come. Later pages are better fetched as they are read.
const PATIENCE: Duration = Duration::from_secs(60);

/// A layer of the image that is started.
#[derive(Clone)]
pub struct Target {
    /// The layer.
    pub served: Arc<ServedLayer>,
    /// The root of trust of its index.
    pub root: Root,
}

/// Loads recordings.
pub struct Loader {
    source: ZoneSource,
    found: Arc<FoundRecording>,
    /// By their place in the recording; `None` where the image's layer is used by another index.
    layers: Vec<Option<Target>>,
    /// Into which layers pages may be brought; none until it is loaded. Kept here, since decoding that runs when the
    /// patience ends goes on to its end.
    injecting: OnceLock<Injecting>,
    /// Tells readers that wait for a page that more has come.
    coming: Mutex<Option<Coming>>,
    /// Pages that other starts are bringing in.
    others: Mutex<PageSet>,
    decoders: Arc<Semaphore>,
}

impl Loader {
    /// A loader of `found` into the layers of an image.
    pub fn new(source: ZoneSource, found: Arc<FoundRecording>, targets: &[Target]) -> Self {
        let target_of = |key: LayerKey, data_size: u64| {
            targets
                .iter()
                .find(|target| {
                    let layer = target.served.layer();
                    layer.key() == key && layer.table().data_size == data_size
                })
                .cloned()
        };
        let layers = found.recording.layers.iter();
        let layers = layers.map(|layer| target_of(layer.into(), layer.data_size));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            source,
            layers: layers.collect(),
            found,
            injecting: OnceLock::new(),
            coming: Mutex::default(),
            others: Mutex::default(),
            decoders: Arc::new(Semaphore::new(cores)),
        }
    }

    /// The layers that pages may be brought into.
    pub fn writable(&self) -> impl Iterator<Item = &Target> {
        let root = self.found.root;
        self.layers
            .iter()
            .flatten()
            .filter(move |target| target.root <= root)
    }

    /// Pages of the service that are present now, so that a view may reach them by a bypass device.
    pub fn free_pages(&self) -> PageSet {
        let mut free = PageSet::default();
        for (number, target) in (0u16..).zip(&self.layers) {
            let Some(target) = target else { continue };
            let layer = target.served.layer();
            let touched = self.found.service.touched.iter().map(|seen| seen.run);
            let held = touched
                .filter(|run| run.layer == number)
                .flat_map(|run| layer.presence().held(run.first..run.end()));
            free.insert(layer.key(), held.collect());
        }
        free
    }

    /// Lets pages be brought into those layers that `injecting` has: others have readers that do not admit the
    /// recording. Gives the pages that a view may reach by a bypass device once they are there: all of the service's in
    /// these layers, and in others those that are present now. Until [`Self::load`] ends, a process that reads one of them early
    /// waits for it; so do other starts that need them, as this one waits for pages that others are bringing in.
    pub fn allow(&self, injecting: Injecting) -> PageSet {
        self.injecting.get_or_init(|| injecting);
        let mut free = self.free_pages();
        let (coming, more) = watch::channel(());
        for (number, target) in self.targets() {
            let touched = self.found.service.touched.iter().map(|seen| seen.run);
            let touched = touched.filter(|run| run.layer == number);
            let touched = touched.map(|run| run.first..run.end()).collect();
            free.insert(target.served.layer().key(), touched);
        }
        *self.coming() = Some(coming);
        self.expect(&more);
        free
    }

    /// The layers that pages may be brought into, with their places in the recording.
    fn targets(&self) -> impl Iterator<Item = (u16, &Target)> {
        let numbers = (0u16..).zip(&self.layers).map(|(number, _)| number);
        numbers.filter_map(|number| Some((number, self.target(number)?)))
    }

    /// Says that missing pages are on their way now, except for those that others are bringing in. Returns whether any are missing.
    fn expect(&self, more: &watch::Receiver<()>) -> bool {
        let (mut others, mut is_missing) = (PageSet::default(), false);
        for (number, target) in self.targets() {
            let runs = self.found.service.touched.iter().map(|seen| seen.run);
            let runs = runs.filter(|run| run.layer == number);
            let missing = normal(runs.flat_map(|run| self.missing(run)).collect());
            is_missing |= !missing.is_empty();
            others.insert(
                target.served.layer().key(),
                target.served.arrivals().expect(&missing, more),
            );
        }
        *self.others.lock() = others;
        is_missing
    }

    /// Pages that other starts were bringing in when they were last looked up.
    fn others(&self) -> PageSet {
        self.others.lock().clone()
    }

    /// Takes pages of the service apart into parts, in the order in which they are touched, which is nearly that in which they come.
    pub fn parts(&self, pages: &PageSet) -> Vec<PageSet> {
        let touched = self.found.service.touched.iter().filter_map(|seen| {
            let target = self.layers.get(usize::from(seen.run.layer))?.as_ref()?;
            Some((target.served.layer().key(), seen.run.first..seen.run.end()))
        });
        bypass_devices::parts(touched, pages)
    }

    /// Tells when more has come, as long as something comes.
    pub fn subscribe(&self) -> Option<watch::Receiver<()>> {
        self.coming().as_ref().map(Coming::subscribe)
    }

    fn tell_more(&self) {
        if let Some(coming) = self.coming().as_ref() {
            coming.send_replace(());
        }
    }

    /// Brings nothing, although pages were allowed.
    pub fn give_up(&self) {
        self.tell_no_more();
    }

    /// Something does not come: waiting readers fetch what they need.
    fn tell_no_more(&self) {
        self.coming().take();
    }

    fn coming(&self) -> MutexGuard<'_, Option<Coming>> {
        self.coming.lock()
    }

    /// Brings in what is missing, into the layers that were passed to [`Self::allow`]. `open` is what is on
    /// its way already.
    pub async fn load(self: &Arc<Self>, open: Option<ZoneStream>) -> Loaded {
        let start = Instant::now();
        let mut loaded = Loaded {
            recording: Some(self.found.name),
            root: Some(self.found.root),
            pages: self.count(|_| true),
            missing: self.count(|run| !self.missing(run).is_empty()),
            joined: self.others().count(),
            ..Loaded::default()
        };
        if loaded.missing > 0 {
            match tokio::time::timeout(PATIENCE, self.bring(&mut loaded, open)).await {
                Ok(Ok(())) => {}
                Ok(Err(problem)) => loaded.problem = Some(problem),
                Err(_) => {
                    loaded.problem = Some(format!("some pages did not come within {} s", PATIENCE.as_secs()));
                }
            }
        }
        loaded.problem = loaded
            .problem
            .or_else(|| self.stronger_layers())
            .or_else(|| self.layers_with_other_readers())
            .or_else(|| self.layers_by_other_indexes());
        if let Some(problem) = &loaded.problem {
            warn!("runtime image {}: {problem}", self.found.name.short());
        }
        loaded.milliseconds = start.elapsed().as_secs_f64() * 1e3;
        self.tell_no_more();
        loaded
    }

    /// The notice about layers whose indexes have a stronger root of trust than the recording.
    fn stronger_layers(&self) -> Option<String> {
        let is_stronger =
            |target: &&Target| target.root > self.found.root && !target.served.layer().is_complete();
        let stronger = self.layers.iter().flatten().filter(is_stronger);
        let root = stronger.map(|target| target.root).max()?;
        let remedy = match root {
            Root::Bound => "only a recording of this host's own does",
            _ => "`xebec record --sign` makes one that does",
        };
        Some(format!(
            "it rests on \"{}\" and brings nothing into layers whose index rests on \"{root}\"; {remedy}",
            self.found.root
        ))
    }

    /// The notice about layers with readers that do not admit the recording.
    fn layers_with_other_readers(&self) -> Option<String> {
        let is_held_up = |target: &&Target| {
            let layer = target.served.layer();
            let may = self
                .injecting
                .get()
                .is_some_and(|injecting| injecting.may(layer.key()));
            !layer.is_complete() && target.root <= self.found.root && !may
        };
        let held_up = self.layers.iter().flatten().filter(is_held_up).count();
        (held_up > 0).then(|| {
            format!("{held_up} of its layers have readers that do not admit the recording, so it brings nothing into them")
        })
    }

    /// The notice about layers that this host uses by another index.
    fn layers_by_other_indexes(&self) -> Option<String> {
        let others = self.layers.iter().filter(|target| target.is_none()).count();
        (others > 0).then(|| format!("this host uses another index for {others} of its layers"))
    }

    /// Pages of the service in runs of single pages for which `counts` holds.
    fn count(&self, counts: impl Fn(PageRun) -> bool) -> u64 {
        let runs = self.found.service.touched.iter().map(|seen| seen.run);
        let singles = runs.flat_map(|run| {
            (run.first..run.end()).map(move |first| PageRun {
                first,
                pages: 1,
                ..run
            })
        });
        singles.filter(|run| counts(*run)).count() as u64
    }

    /// The layer that pages of a run may be brought into.
    fn target(&self, layer: u16) -> Option<&Target> {
        let target = self.layers.get(usize::from(layer))?.as_ref()?;
        let is_allowed = self.injecting.get()?.may(target.served.layer().key());
        (is_allowed && target.root <= self.found.root).then_some(target)
    }

    /// The layer that pages of a run are about to be written to. A reader may have come since that does not admit them.
    fn begin_to_write(&self, layer: u16) -> Option<(&Target, Writing<'_>)> {
        let target = self.target(layer)?;
        let writing = self.injecting.get()?.write(target.served.layer().key())?;
        Some((target, writing))
    }

    /// Nothing more comes into a layer: a reader that waits for a page of it fetches the page.
    fn withdraw(&self, layer: u16) {
        let target = self.layers.get(usize::from(layer)).and_then(Option::as_ref);
        if let (Some(target), Some(more)) = (target, self.subscribe()) {
            target.served.arrivals().withdraw(&more);
        }
    }

    /// The missing pages of a run that may be brought in.
    fn missing(&self, run: PageRun) -> Vec<Range<u64>> {
        self.target(run.layer).map_or_else(Vec::new, |target| {
            target.served.layer().presence().missing(run.first..run.end())
        })
    }

    /// The missing pages of a run that nobody else is bringing in.
    fn own(&self, run: PageRun, others: &PageSet) -> Vec<Range<u64>> {
        let missing = self.missing(run);
        let target = self.target(run.layer);
        let others = target.map_or(&[][..], |target| others.runs(target.served.layer().key()));
        difference(&missing, others)
    }

    /// The recording that is loaded.
    pub fn recording(&self) -> &Recording {
        &self.found.recording
    }
}
