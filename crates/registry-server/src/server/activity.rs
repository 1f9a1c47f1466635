//! The requests of a connection that are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request of the connection is under way while one of these lives.
#[derive(Clone)]
pub(super) struct Busy {
    _token: Arc<Token>,
}

struct Token(Arc<Activity>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_one();
    }
}

/// The requests that are under way on a connection.
#[derive(Default)]
pub(super) struct Activity {
    under_way: AtomicUsize,
    ended: tokio::sync::Notify,
}

impl Activity {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Busy {
            _token: Arc::new(Token(self.clone())),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) == 0
    }

    /// Waits until a request has ended.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }
}
