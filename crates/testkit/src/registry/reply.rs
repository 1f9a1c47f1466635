//! A reply before it is distorted and sent.

use bytes::Bytes;
use serde_json::json;

/// An answer before it becomes a response.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
    /// The value of `Content-Length`, if not the length of `body`.
    pub(super) length: Option<u64>,
}

impl Reply {
    pub(super) fn new(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn body(self, body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
    }

    pub(super) fn error(status: u16, code: &str) -> Self {
        let body = json!({"errors": [{"code": code, "message": "the faulty registry says so"}]});
        Self::new(status)
            .with("content-type", "application/json")
            .body(body.to_string())
    }
}
