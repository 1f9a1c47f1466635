//! Evicts one layer, so that no reader ever sees that pages are gone.
//!
//! In this order, so that a process that dies on the way leaves a consistent cache:
//! 1. No request under way relies on the layer, no view that is used reads it, no fill of it is under way; new ones
//!    wait ([`Usage`](xebec_fill::usage::Usage)). Views that linger are unmounted.
//! 2. A lease proves that nobody else has its data file open: no view that was unmounted lazily, no command that
//!    looks at it. A process that opens it from now on waits.
//! 3. Views stop being built on its files ([`SharedContents`](xebec_views::sharing::SharedContents)).
//! 4. The file's ignore mark is removed, so that reads by the guarded path raise events again.
//! 5. Its pages are punched, claims first (`CachedLayer::punch`), or its folder loses its name and is removed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tracing::info;
use xebec_cache::evict::{Action, Step};
use xebec_cache::store::{LayerKey, Store};
use xebec_fill::fill_service::FillService;
use xebec_kernel::lease::Lease;
use xebec_views::sharing::SharedContents;
use xebec_views::views::Views;

/// Removes data of layers.
pub(crate) struct Eviction {
    pub(crate) store: Arc<Store>,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) shared: Arc<SharedContents>,
}

impl Eviction {
    /// Carries a step out.
    ///
    /// # Errors
    /// Why the layer stays, for people. It is then as it was, or has lost some of its pages.
    pub(crate) fn evict(&self, step: &Step) -> Result<(), String> {
        self.evict_unless(step, || false)
    }

    /// Carries a step out, unless the layer turns out to be wanted when no request can begin to rely on it any more.
    ///
    /// # Errors
    /// Those of [`Self::evict`].
    pub(crate) fn evict_unless(&self, step: &Step, is_wanted: impl FnOnce() -> bool) -> Result<(), String> {
        let key = step.key;
        let _going = self
            .fills
            .usage()
            .evict(key)
            .ok_or("a request under way uses it")?;
        if is_wanted() {
            return Err("it has come to be wanted meanwhile".to_owned());
        }
        // Nobody can begin to use one of them now.
        self.views.take_down_unused(|view| view.reads(key));
        if let Some(user) = self.user_of(key) {
            return Err(format!("it is in use by {user}"));
        }
        if !self.fills.release(key) {
            return Err("it is being filled".to_owned());
        }
        let text = |error: io::Error| format!("its data file: {error}");
        match &step.action {
            Action::Punch(runs) => {
                let store = &self.store;
                let index = store.index_bytes(key).map_err(|error| error.to_string())?;
                let layer = store.open_layer(key, &index).map_err(|error| error.to_string())?;
                let _lease = self.take_over(key, layer.descriptor().ok_or("it has no data file")?)?;
                for run in runs {
                    layer.punch(run.clone()).map_err(text)?;
                }
            }
            Action::Remove => {
                let path = self.store.data_path(key);
                let data = match File::options().read(true).write(true).open(path) {
                    Ok(data) => Some(data),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(text(error)),
                };
                let _lease = data
                    .as_ref()
                    .map(|data| self.take_over(key, data.as_fd()))
                    .transpose()?;
                let removed = self.store.remove(key);
                removed.map_err(|error| error.to_string())?;
            }
        }
        info!("{key}: {} bytes evicted", step.bytes);
        Ok(())
    }

    /// Steps 2 to 4.
    fn take_over<'a>(&self, key: LayerKey, data: BorrowedFd<'a>) -> Result<Lease<'a>, String> {
        let lease = Lease::take(data)
            .map_err(|error| format!("cannot find out whether a process has its data open: {error}"))?
            .ok_or("a process has its data open, perhaps by a view that was unmounted while in use")?;
        self.shared.forget(key);
        self.fills.ask_again(data).map_err(|error| error.to_string())?;
        Ok(lease)
    }

    /// The view that reads a layer, if any does.
    pub(crate) fn user_of(&self, key: LayerKey) -> Option<String> {
        let views = self.views.held();
        let view = views.iter().find(|view| view.reads(key))?;
        Some(format!("{} on {}", view.reference, view.path.display()))
    }
}
