//! Counters of one receiver of webhooks.

use std::sync::atomic::AtomicU64;

/// Counts of one receiver's events, by their fate, and of failed requests.
#[derive(Debug, Default)]
pub struct Counters {
    /// Taken by the receiver.
    pub delivered: AtomicU64,
    /// Requests that failed.
    pub failed: AtomicU64,
    /// Given up, or too many for the queue.
    pub dropped: AtomicU64,
    /// In the queue, or being sent.
    pub waiting: AtomicU64,
}
