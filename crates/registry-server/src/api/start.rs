//! `/v2/NAME/_xebec/start/answer`: what a start needs, in one answer (docs/formats/native-service.md); and `/v2/_oci/ext/discover`, which says
//! that there is such an endpoint.
//!
//! [`gather`] finds what is sent, as if the client had asked for one content after the other; [`contents`] sends it.

mod contents;
mod gather;

use hyper::StatusCode;
use serde_json::json;
use xebec_native::start_request::{MAX_SIZE, StartRequest};
use xebec_oci::Platform;
use xebec_store::RepositoryName;

use super::call::{Call, Outcome};
use super::manifests;
use super::reply::{self, Answer};
use crate::error::{ApiError, Code};
use crate::route::Reference;
use gather::Start;

/// Answers a start.
pub(crate) async fn answer(call: &mut Call<'_>, repository: &RepositoryName) -> Outcome {
    let body = manifests::small_body(call, MAX_SIZE as u64).await?;
    let (body, _room) = body.ok_or_else(|| {
        let detail = format!("the request of a start has {MAX_SIZE} bytes at most");
        ApiError::new(Code::SizeInvalid, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    })?;
    let request = StartRequest::decode(&body).map_err(|error| invalid(&error))?;
    let start = Start {
        call,
        repository,
        reference: Reference::parse(&request.reference)?,
        platform: request
            .platform
            .parse::<Platform>()
            .map_err(|error| invalid(&error))?,
        request: request.into(),
    };
    let (contents, warning) = start.gather().await?;
    let answer = contents.answer(call)?;
    Ok(match warning {
        Some(warning) => reply::with_warning(answer, &warning),
        None => answer,
    })
}

fn invalid(error: &dyn std::error::Error) -> ApiError {
    let detail = format!("{error}; /v2/_oci/ext/discover says where requests of starts are described");
    ApiError::new(Code::Unsupported, detail).with_status(StatusCode::BAD_REQUEST)
}

/// The endpoints beyond the distribution specification, as that wants them listed.
pub(crate) fn discovery() -> Answer {
    reply::json(&json!({"extensions": [{
        "name": xebec_native::EXTENSION,
        "description": "answers all requests of a start at once, tells what changes in a repository, and takes layers without what it has of them",
        "url": concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/formats/native-service.md"),
        "endpoints": [xebec_native::START, xebec_native::WATCH, xebec_native::PUSH],
    }]}))
}
