//! The system call filter.

use serde_json::{Value, json};

pub(super) fn profile() -> Value {
    json!(null)
}
