//! `/token`: the built-in token endpoint, which knows no connections ([`xebec_access::endpoint`]).

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use xebec_access::endpoint::MAX_FORM;

use super::call::Outcome;
use super::{failure, reply};
use crate::body::RequestBody;
use crate::error::{ApiError, Code};
use crate::state::Registry;

/// Gives out a token, or says why not.
pub(crate) async fn answer(registry: &Registry, parts: &Parts, body: &mut RequestBody) -> Outcome {
    let form = body
        .read(MAX_FORM as u64)
        .await
        .map_err(|error| failure::of_body(&error))?;
    let form = form.ok_or_else(|| {
        let detail = format!("the form has more than {MAX_FORM} bytes; ask for fewer scopes at once");
        ApiError::new(Code::SizeInvalid, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    })?;
    let answered = registry.guard.token(parts, &form).await;
    let mut answer = reply::json(&answered.body);
    *answer.status_mut() = StatusCode::from_u16(answered.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // RFC 6749, 5.1.
    let answer = reply::with(answer, CACHE_CONTROL, "no-store");
    Ok(match answered.challenge {
        Some(challenge) => reply::with(answer, WWW_AUTHENTICATE, challenge),
        None => answer,
    })
}
