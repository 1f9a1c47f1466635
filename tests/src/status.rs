//! The state of pods and nodes, as Kubernetes reports it.

use serde_json::Value;

/// The ids of a pod's containers and how often each was started again, those first that start first.
pub(crate) fn containers(status: &Value) -> Vec<(String, u64)> {
    let containers = ["initContainerStatuses", "containerStatuses"]
        .iter()
        .flat_map(|kind| status[kind].as_array().cloned().unwrap_or_default());
    let facts = containers.map(|container| {
        let id = container["containerID"].as_str().unwrap_or_default().to_owned();
        (id, container["restartCount"].as_u64().unwrap_or(u64::MAX))
    });
    facts.collect()
}

/// Whether a condition of a pod or a node has this status.
pub(crate) fn is_condition(status: &Value, kind: &str, wanted: &str) -> bool {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.any(|condition| condition["type"] == kind && condition["status"] == wanted)
}
