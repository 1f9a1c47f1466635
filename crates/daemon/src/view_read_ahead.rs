//! How far the kernel reads ahead in a view: not at all while its service starts, as usual afterwards.

use std::sync::Arc;
use std::time::Duration;

use crate::services::Services;
use crate::start_table::START;

/// The kernel's own read-ahead.
const READ_AHEAD_KIB: u32 = 128;

impl Services {
    /// The same for views whose service was starting when the last worker ended.
    pub(super) fn widen_restored(self: &Arc<Self>) {
        let narrow = self.views.list().into_iter().filter(|view| view.narrow.is_some());
        narrow.for_each(|view| self.widen_later(view.name));
    }

    /// Lets a view read ahead again once its service has started.
    pub(super) fn widen_later(self: &Arc<Self>, view: String) {
        self.widen_after(view, START);
    }

    /// Lets a view read ahead again after a time.
    pub(super) fn widen_after(self: &Arc<Self>, view: String, time: Duration) {
        let this = self.clone();
        let narrowed = self.views.times_narrowed(&view);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            this.views.widen(&view, READ_AHEAD_KIB, narrowed);
        });
    }
}
