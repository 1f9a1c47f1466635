//! The state of a connection, as far as an answer needs it.

use std::sync::Arc;

use super::body::Line;
use super::log::Place;
use super::state::State;

/// One connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) state: Arc<State>,
    pub(super) place: Place,
    pub(super) number: u64,
    pub(super) line: Arc<Line>,
}
