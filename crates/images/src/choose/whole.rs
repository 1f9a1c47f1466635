//! What is said of layers that are read whole, because no index of them may be used.

use std::collections::HashSet;

use tracing::info;
use xebec_protocol::wire::Reply;

use super::choice::Choice;
use crate::images::Report;
use crate::lazy::is_small;

impl Choice<'_> {
    /// Tells once for each reason how many layers are read whole now, and how many bytes they have. Layers that take no time worth
    /// speaking of are not spoken of, unless larger ones are read for the same reason.
    pub(super) fn tell_whole(&self, missing: Vec<(usize, &str)>, report: &Report) {
        let mut reasons: Vec<&str> = missing.iter().map(|(_, reason)| *reason).collect();
        let mut seen = HashSet::new();
        reasons.retain(|reason| seen.insert(*reason));
        for reason in reasons {
            let of_reason = missing.iter().filter(|(_, other)| *other == reason);
            // An image may list a layer twice, which is read once.
            let mut digests = HashSet::new();
            let layers = of_reason.filter_map(|(number, _)| self.found.layers.get(*number));
            let layers: Vec<_> = layers.filter(|layer| digests.insert(layer.digest)).collect();
            let bytes: u64 = layers.iter().map(|layer| layer.size).sum();
            if layers.iter().all(|layer| is_small(layer.size)) {
                info!(
                    "{} small layers ({bytes} bytes) are read whole: {reason}",
                    layers.len()
                );
                continue;
            }
            let which = match (layers.as_slice(), self.found.layers.len()) {
                ([layer], all) => format!("1 of {all} layers ({}) is", layer.digest.short()),
                (several, all) => format!("{} of {all} layers are", several.len()),
            };
            let text = format!(
                "{which} read whole now ({}), so this start is not lazy: {reason}",
                size(bytes)
            );
            report(Reply::Notice { text });
        }
    }
}

/// A size for people, in the units of registries.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
