//! What a host and a registry of Xebec say to each other beyond the distribution specification, as bytes
//! (docs/formats/native-service.md).
//!
//! * [`start_request`], [`start_answer`]: the messages; [`runs`] is pages that are there, as a message has them.
//! * [`choose_service`], [`start_pieces`]: what a registry makes of a request: which recorded service is meant, and which bytes the host lacks;
//!   [`piece_reads`] is how these are read, [`answer_parts`] what of all that fits in an answer.
//! * [`watch`]: what a host hears that watches a repository.
//! * [`push`]: which contents of a layer a registry has, and the others.
//!
//! Promise: a message that is read keeps all limits that are named here, so that code that uses it need not look again. Reading a
//! message takes memory in proportion to its bytes. Nothing here is believed: a host verifies each answer as if it had asked for that alone.
//!
//! May use: `format`, and no other crate of Xebec.

pub mod answer_parts;
pub mod choose_service;
pub mod piece_reads;
pub mod push;
pub mod runs;
pub mod start_answer;
pub mod start_pieces;
pub mod start_request;
pub mod watch;

/// The header by which each answer of the distribution API says which versions of the start answer the registry gives: numbers with
/// commas between them.
pub const HEADER: &str = "xebec-native";
/// The value of [`HEADER`] by this version of Xebec.
pub const VERSIONS: &str = "1";
/// The name of the extension, as discovery has it (distribution specification, "Extensions").
pub const EXTENSION: &str = "_xebec";
/// The endpoint below a repository that answers a start.
pub const START: &str = "_xebec/start/answer";
/// The endpoint below a repository that tells what changes there.
pub const WATCH: &str = "_xebec/watch/changes";
/// The endpoint below a repository that puts layers together of what it has and what it gets.
pub const PUSH: &str = "_xebec/push/layers";

/// Whether a registry that sends this value of [`HEADER`] gives start answers of a version that is read here.
pub fn is_spoken(value: &str) -> bool {
    value.split(',').any(|version| version.trim() == VERSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_registries_go_on_to_say_version_1() {
        for spoken in ["1", "1,2", "2, 1 ,3"] {
            assert!(is_spoken(spoken), "{spoken}");
        }
        for unspoken in ["", "2", "11", "1.0", "yes"] {
            assert!(!is_spoken(unspoken), "{unspoken}");
        }
    }
}
