//! The outer filter of a command that joins a container later.
//!
//! A runtime knows the inner filter of each of its containers, and nothing of the outer one. So the container's
//! configuration has a note of it, from which the same program is assembled again.

use serde_json::{Value, json};
use xebec_kernel::process::Instruction;

use super::program;
use crate::capabilities::Capabilities;

/// The annotation of a container with the outer filter.
pub const ANNOTATION: &str = "dev.xebec.outer-filter";

/// Its values: the allow list, and the allow list for programs that make sockets by `socketcall(2)`.
const ALLOW_LIST: &str = "allow-list";
const WITH_SOCKETCALL: &str = "allow-list,socketcall";

/// The annotation's value for a container with the outer filter.
pub(crate) fn annotation(socketcall: bool) -> &'static str {
    match socketcall {
        true => WITH_SOCKETCALL,
        false => ALLOW_LIST,
    }
}

/// The outer filter of a container, by the runtime's configuration of it. `None` if it has none.
///
/// Configurations of versions without the annotation have the outer filter if their inner one allows calls that it does not name. A
/// profile of the user may do that as well: then the command is confined more than its container.
pub fn outer_filter_of(config: &Value) -> Option<Vec<Instruction>> {
    let noted = &config["annotations"][ANNOTATION];
    let has_one = !noted.is_null() || config["linux"]["seccomp"]["defaultAction"] == json!("SCMP_ACT_ALLOW");
    if !has_one || !cfg!(target_arch = "x86_64") {
        return None;
    }
    let names = config["process"]["capabilities"]["bounding"].as_array();
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    let capabilities = Capabilities::from_names(names);
    Some(program::allow_list(capabilities, noted == WITH_SOCKETCALL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{Filter, Filters};

    fn config(capabilities: Capabilities, filters: &Filters, annotation: Option<&str>) -> Value {
        let mut config = json!({
            "process": { "capabilities": { "bounding": capabilities.names() } },
            "linux": {},
        });
        if let Some(profile) = &filters.profile {
            config["linux"]["seccomp"] = profile.clone();
        }
        if let Some(annotation) = annotation {
            config["annotations"] = json!({ ANNOTATION: annotation });
        }
        config
    }

    #[test]
    fn the_outer_filter_is_assembled_again() {
        for capabilities in [Capabilities::default(), Capabilities::ALL] {
            for socketcall in [false, true] {
                let filters = Filters::new(&Filter::Default, capabilities, true, socketcall);
                let config = config(capabilities, &filters, Some(annotation(socketcall)));
                assert_eq!(outer_filter_of(&config), filters.outer);
            }
        }
    }

    #[test]
    fn a_container_without_one_gets_none_and_an_unknown_note_the_strictest() {
        let none = Capabilities::default();
        for filter in [
            Filter::Unconfined,
            Filter::Custom(json!({ "defaultAction": "SCMP_ACT_ERRNO" })),
        ] {
            let filters = Filters::new(&filter, none, true, false);
            assert_eq!(outer_filter_of(&config(none, &filters, None)), None);
        }
        let by_names = Filters::new(&Filter::Default, none, false, false);
        assert_eq!(outer_filter_of(&config(none, &by_names, None)), None);
        let filters = Filters::new(&Filter::Default, none, true, false);
        for note in [None, Some(""), Some("of a later version")] {
            assert_eq!(outer_filter_of(&config(none, &filters, note)), filters.outer);
        }
    }
}
