//! A layer is pushed to a registry of Xebec without what that has of it (docs/formats/native-service.md, "Pushing a layer").
//!
//! Whatever goes wrong here, the layer is pushed as a blob. So nothing is tried again.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use xebec_native::PUSH;
use xebec_native::push::{BITMAP_TYPE, Bitmap, MAX_OFFER, Offer, PARCEL_TYPE, QUESTION_TYPE};

use super::Client;
use crate::auth::Scope;
use crate::error::Fault;
use crate::media_type::without_parameters;
use crate::memory;
use crate::reference::Repository;
use crate::transport::registry::Endpoint;
use crate::transport::{Ask, Payload, Place};

/// A registry is waited for as long as it may work on a layer: so long, and a second for so many bytes that come, and that the layer has.
const TIME: Duration = Duration::from_secs(60);
const SLOWEST_COMING: u64 = 32 << 10;
const SLOWEST_MADE: u64 = 1 << 20;

/// A registry of Xebec to which layers are pushed.
#[derive(Debug)]
pub struct NativePush {
    client: Client,
    repository: Repository,
    endpoint: Endpoint,
}

/// Why a layer is pushed as a blob.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct NoPush {
    why: String,
    is_busy: bool,
}

impl NoPush {
    fn because(why: impl ToString) -> Self {
        Self {
            why: why.to_string(),
            is_busy: false,
        }
    }

    /// Whether the registry has too much to do now, so that nothing is wrong.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }
}

impl From<Fault> for NoPush {
    fn from(fault: Fault) -> Self {
        let is_busy = matches!(fault, Fault::Status { code: 429 | 503, .. });
        Self {
            is_busy,
            ..Self::because(fault)
        }
    }
}

impl Client {
    /// The service to which layers of `repository` are pushed, if the registry was seen to have one.
    pub fn native_push(&self, repository: &Repository) -> Option<NativePush> {
        let endpoint = self.transport.servers.origin(repository.registry());
        let may = self.transport.config.of_registry(repository.registry()).native;
        let is_native = may && memory::is_native(&*self.transport.memory, &endpoint.server.name());
        is_native.then(|| NativePush {
            client: self.clone(),
            repository: repository.clone(),
            endpoint,
        })
    }
}

impl NativePush {
    /// What the registry offers.
    ///
    /// # Errors
    /// If it puts no layers together.
    pub async fn offer(&self) -> Result<Offer, NoPush> {
        let bytes = self.answer(self.ask(Method::GET), MAX_OFFER).await?.1;
        serde_json::from_slice(&bytes)
            .map_err(|error| NoPush::because(format!("its offer cannot be read: {error}")))
    }

    /// Asks which of so many contents the registry has.
    ///
    /// # Errors
    /// If it does not say so.
    pub async fn which(&self, question: Vec<u8>, contents: usize) -> Result<Bitmap, NoPush> {
        let ask = self.ask(Method::POST).header(CONTENT_TYPE, QUESTION_TYPE);
        let ask = ask.payload(Payload::Bytes(question.into()));
        let (kind, bytes) = self.answer(ask, contents.div_ceil(8) as u64).await?;
        if kind != BITMAP_TYPE {
            return Err(NoPush::because(format!("it answers with {kind:?}")));
        }
        Bitmap::from_bytes(&bytes, contents).map_err(NoPush::because)
    }

    /// Sends a parcel, which is a file of `length` bytes, of a layer of `size` bytes.
    ///
    /// # Errors
    /// If no layer comes of it.
    pub async fn send(&self, path: PathBuf, length: u64, size: u64) -> Result<(), NoPush> {
        let ask = self.ask(Method::PUT).header(CONTENT_TYPE, PARCEL_TYPE);
        let mut ask = ask.payload(Payload::File {
            path,
            offset: 0,
            length,
        });
        ask.slack = TIME + Duration::from_secs(length / SLOWEST_COMING + size / SLOWEST_MADE);
        self.answer(ask, 0).await.map(drop)
    }

    fn ask(&self, method: Method) -> Ask {
        let name = self.repository.name();
        Ask::new(method, Place::Path(format!("{name}/{PUSH}")), Scope::push(name))
    }

    /// The type and the bytes of an answer, of which no more than `most` are read.
    async fn answer(&self, ask: Ask, most: u64) -> Result<(String, Bytes), NoPush> {
        let Client {
            transport, counters, ..
        } = &self.client;
        let mut answer = transport.send(&self.endpoint, &ask, counters).await?;
        if !matches!(answer.status().as_u16(), 200 | 201) {
            return Err(answer.into_fault().await.into());
        }
        let kind = answer.header(CONTENT_TYPE.as_str()).map(without_parameters);
        let kind = kind.unwrap_or_default().to_owned();
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await? {
            if bytes.len() as u64 + part.len() as u64 > most {
                return Err(NoPush::because(format!("its answer has more than {most} bytes")));
            }
            bytes.extend_from_slice(&part);
        }
        Ok((kind, bytes.into()))
    }
}
