//! Checks for the plugins and `iptables`, which networks of containers need. The host's network needs neither.

use super::finding::Finding;

const NAME: &str = "networks";
const ADVICE: &str = "`xebec run --publish` and networks need them: install them (Debian: apt-get install containernetworking-plugins \
                      iptables); containers on the host's network do without";

pub(super) fn check() -> Finding {
    let missing = xebec_network::missing_programs();
    match missing.is_empty() {
        true => Finding::good(NAME, "the CNI plugins and iptables are here"),
        false => Finding::poor(
            NAME,
            format!("not here: {}", missing.join(", ")),
            ADVICE.to_owned(),
        ),
    }
}
