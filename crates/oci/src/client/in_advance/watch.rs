//! What changes in a repository, as a registry of Xebec tells it.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use xebec_native::WATCH;
pub use xebec_native::watch::Change;
use xebec_native::watch::{Decoder, TYPE};

use super::NativeService;
use crate::auth::Scope;
use crate::media_type::without_parameters;
use crate::transport::http::Answer;
use crate::transport::{Ask, Place};

/// A registry that is silent for so long is gone: it sends something four times as often.
const SILENCE: Duration = Duration::from_secs(60);

/// Why a registry tells of no changes, or of no more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoWatch(String);

/// What changes in a repository.
#[derive(Debug)]
pub struct Watch {
    answer: Answer,
    decoder: Decoder,
}

impl NativeService {
    /// Watches the repository, from now on. What it tells is believed in nothing: it is a hint to look.
    ///
    /// # Errors
    /// If the registry tells of no changes.
    pub async fn watch(&self) -> Result<Watch, NoWatch> {
        let place = Place::Path(format!("{}/{WATCH}", self.repository.name()));
        let scope = Scope::pull(self.repository.name());
        let mut ask = Ask::new(Method::GET, place, scope).header(ACCEPT, TYPE);
        ask.stream = true;
        let sent = self
            .client
            .transport
            .send(&self.endpoint, &ask, &self.client.counters);
        let answer = sent.await.map_err(|fault| NoWatch(fault.to_string()))?;
        let content_type = answer.header(CONTENT_TYPE.as_str()).map(without_parameters);
        match answer.status().as_u16() {
            200 if content_type == Some(TYPE) => Ok(Watch {
                answer: answer.trickling(SILENCE),
                decoder: Decoder::default(),
            }),
            200 => Err(NoWatch(format!("it answers with {content_type:?}"))),
            _ => Err(NoWatch(answer.into_fault().await.to_string())),
        }
    }
}

impl Watch {
    /// The next change; `None` when the registry ends the watch, as it does after some minutes.
    ///
    /// # Errors
    /// If the connection breaks, or the registry is silent for a minute.
    pub async fn next(&mut self) -> Result<Option<Change>, NoWatch> {
        loop {
            if let Some(change) = self.decoder.next_change() {
                return Ok(Some(change));
            }
            match self.answer.chunk().await {
                Ok(Some(part)) => self.decoder.push(&part),
                Ok(None) => return Ok(None),
                Err(fault) => return Err(NoWatch(fault.to_string())),
            }
        }
    }
}
