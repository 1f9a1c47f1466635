//! The worker's intake of events: read, recorded, handed on, answered.
