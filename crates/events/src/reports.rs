//! Those who are told by a server of its own: the audit log and webhooks. They have queues, which a server that ends empties first.

use std::sync::Arc;
use std::time::Duration;

use crate::audit::Audit;
use crate::webhooks::Webhooks;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// The audit log, if there is one.
    pub audit: Option<Arc<Audit>>,
    /// The receivers, if there are any.
    pub webhooks: Option<Arc<Webhooks>>,
}

impl Reports {
    /// Waits until what was reported so far is written and sent, but no longer than `within`. The log tells what is left then.
    pub async fn finish(&self, within: Duration) {
        tokio::join!(self.finish_audit(within), self.finish_webhooks(within));
    }

    async fn finish_audit(&self, within: Duration) {
        let Some(audit) = self.audit.clone() else {
            return;
        };
        let flushing = tokio::task::spawn_blocking(move || (audit.flush(within), audit.lost()));
        match flushing.await {
            Ok((true, 0)) => {}
            Ok((true, lost)) => tracing::error!(lost, "the audit log could not be written; it lacks lines"),
            _ => tracing::error!("the audit log was not written in time; it lacks the last lines"),
        }
    }

    async fn finish_webhooks(&self, within: Duration) {
        let Some(webhooks) = &self.webhooks else {
            return;
        };
        let lost = webhooks.finish(within).await;
        if lost > 0 {
            tracing::error!(lost, "events of webhooks were not sent in time; they are lost");
        }
    }
}
