//! Requests about the registry itself: whether it is one, whether it lives and is ready, and its figures.

use hyper::StatusCode;
use xebec_store::Store;

use super::call::Outcome;
use super::reply::{self, Answer};
use crate::error::ApiError;
use crate::figures;
use crate::state::Registry;

/// The media type of the figures: OpenMetrics, which Prometheus reads.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The way clients find out that this is a registry.
pub(crate) fn ping() -> Answer {
    reply::bytes("application/json", "{}")
}

/// The process lives, since it answers.
pub(crate) fn health() -> Answer {
    reply::bytes("text/plain", "ok\n")
}

/// Whether requests should be sent here: the database and the object store answer, and the server is not about to end.
pub(crate) async fn ready(registry: &Registry) -> Answer {
    let (status, text) = match registry.is_ending() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "ending\n".to_owned()),
        false => match probe(&registry.store).await {
            Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
            Err((what, error)) => {
                tracing::warn!("not ready: {error}");
                let text = format!("the {what} does not answer; see the log\n");
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
        },
    };
    let mut answer = reply::bytes("text/plain", text);
    *answer.status_mut() = status;
    answer
}

/// Asks both engines. The error is the one that does not answer, and why.
async fn probe(store: &Store) -> Result<(), (&'static str, String)> {
    let database = store.database_answers().await;
    database.map_err(|error| ("database", error.to_string()))?;
    let objects = store.objects_answer().await;
    objects.map_err(|error| ("object store", error))
}

/// The figures.
pub(crate) fn metrics(registry: &Registry) -> Outcome {
    match registry.metrics.text(|to| figures::add(to, registry)) {
        Ok(text) => Ok(reply::bytes(OPENMETRICS, text)),
        Err(error) => Err(ApiError::internal("writing the metrics", &error)),
    }
}
