//! How far the kernel reads ahead in a view: not at all while its service starts, as usual afterwards.

use std::sync::Arc;
use std::time::Duration;

use xebec_views::views::Views;

/// The kernel's own read-ahead.
const READ_AHEAD_KIB: u32 = 128;
/// How long after its mount a view reads no further than the page that is asked for. While a service starts, the pages that it
/// needs are there already, and reading ahead would fetch pages that it does not need.
pub(crate) const START: Duration = Duration::from_secs(20);

/// How far the kernel reads ahead in views.
pub(crate) struct ViewReadAhead {
    views: Arc<Views>,
}

impl ViewReadAhead {
    /// Of these views.
    pub(crate) fn new(views: Arc<Views>) -> Arc<Self> {
        Arc::new(Self { views })
    }

    /// Lets views read ahead again whose service was starting when the last worker ended, some time from now.
    pub(crate) fn widen_restored(&self) {
        let narrow = self.views.list().into_iter().filter(|view| view.narrow.is_some());
        narrow.for_each(|view| self.widen_later(view.name));
    }

    /// Lets a view read ahead again once its service has started.
    pub(crate) fn widen_later(&self, view: String) {
        self.widen_after(view, START);
    }

    /// Lets a view read ahead again after a time.
    pub(crate) fn widen_after(&self, view: String, time: Duration) {
        let views = self.views.clone();
        let narrowed = self.views.times_narrowed(&view);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            views.widen(&view, READ_AHEAD_KIB, narrowed);
        });
    }
}
