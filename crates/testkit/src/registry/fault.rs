//! Faults that the test registry injects, and the requests that each one hits.

use std::time::Duration;

use super::log::{Place, RequestHead};

/// One way to misbehave.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Answers a range request with status 200 and everything.
    IgnoreRange,
    /// Answers with this status and perhaps a `Retry-After`.
    Status {
        /// The status code.
        code: u16,
        /// Value of the header, seconds or a date.
        retry_after: Option<String>,
    },
    /// Closes the connection after this many bytes of the body.
    Truncate(u64),
    /// Resets the connection after this many bytes of the body; with 0, before any answer.
    Reset(u64),
    /// Sends this many bytes of the body, and then nothing, on a connection that stays open.
    Stall(u64),
    /// Sends the body at this rate.
    Trickle {
        /// Bytes in each second; at least 10.
        bytes_per_second: u64,
    },
    /// Waits before it answers.
    Delay(Duration),
    /// Never answers.
    Hang,
    /// Flips a bit in each byte of the body.
    WrongBytes,
    /// Says in `Content-Range` that the part starts one byte later.
    WrongContentRange,
    /// Says in `Content-Length` one byte more than it says in `Content-Range`.
    WrongContentLength,
    /// Sends at most this much of a range, correctly announced, as RFC 9110 allows.
    ShortRange(u64),
    /// Calls the answer `multipart/byteranges`.
    Multipart,
    /// Claims that the body is compressed.
    ContentEncoding,
    /// Answers with status 200 and a web page.
    Html,
    /// Answers with this.
    Answer {
        /// The status code.
        status: u16,
        /// Value of `Content-Type`.
        content_type: &'static str,
        /// The body.
        body: String,
    },
    /// Answers with this and no body.
    Says {
        /// The status code.
        status: u16,
        /// Names, in lower case, and values of headers.
        headers: Vec<(&'static str, String)>,
    },
    /// Answers as usual, with these headers, whose names are in lower case, beside its own.
    With(Vec<(&'static str, String)>),
    /// Answers as usual, and names the next page of a list.
    Page {
        /// Value of `Link`.
        link: String,
    },
    /// Forgets all tokens it gave out, so that this request is answered with 401.
    ExpireTokens,
}

/// Which requests a fault befalls. All conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct When {
    method: Option<String>,
    path: Option<String>,
    place: Option<Place>,
    has_range: Option<bool>,
    skip: u64,
    times: Option<u64>,
}

impl When {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests for blobs, wherever they are answered.
    pub fn blob() -> Self {
        Self::any().method("GET").path("/blobs/sha256:")
    }

    /// Requests for manifests.
    pub fn manifest() -> Self {
        Self::any().method("GET").path("/manifests/")
    }

    /// Only this method.
    #[must_use]
    pub fn method(self, method: &str) -> Self {
        Self {
            method: Some(method.to_owned()),
            ..self
        }
    }

    /// Only paths that contain this.
    #[must_use]
    pub fn path(self, part: &str) -> Self {
        Self {
            path: Some(part.to_owned()),
            ..self
        }
    }

    /// Only at this server.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }

    /// Only with, or only without, a `Range` header.
    #[must_use]
    pub fn range(self, has_range: bool) -> Self {
        Self {
            has_range: Some(has_range),
            ..self
        }
    }

    /// Leaves out the first requests that would match.
    #[must_use]
    pub fn skip(self, requests: u64) -> Self {
        Self {
            skip: requests,
            ..self
        }
    }

    /// Only this many requests.
    #[must_use]
    pub fn times(self, requests: u64) -> Self {
        Self {
            times: Some(requests),
            ..self
        }
    }

    fn matches(&self, head: &RequestHead) -> bool {
        self.method.as_ref().is_none_or(|method| *method == head.method)
            && self
                .path
                .as_ref()
                .is_none_or(|part| head.path.contains(part.as_str()))
            && self.place.is_none_or(|place| place == head.place)
            && self.has_range.is_none_or(|wanted| wanted == head.range.is_some())
    }
}

/// The faults that are to come.
#[derive(Debug, Default)]
pub(super) struct Script(Vec<(When, Fault)>);

impl Script {
    pub(super) fn add(&mut self, when: When, fault: Fault) {
        self.0.push((when, fault));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The fault for this request: the first rule that matches and is not used up. Counts it.
    pub(super) fn next(&mut self, head: &RequestHead) -> Option<Fault> {
        for (when, fault) in &mut self.0 {
            if !when.matches(head) || when.times == Some(0) {
                continue;
            }
            if when.skip > 0 {
                when.skip -= 1;
                continue;
            }
            if let Some(times) = &mut when.times {
                *times -= 1;
            }
            return Some(fault.clone());
        }
        None
    }
}
