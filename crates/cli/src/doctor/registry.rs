//! The check of a registry: what it can do.

use std::time::Duration;

use xebec_images::images::Images;
use xebec_oci::{ClientError, ProbeReport, Reference};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::{caller, runtime};

/// How long a registry may take for each thing that it is asked: a person waits, and one that is well answers within a second.
const ANSWER: Duration = Duration::from_secs(5);

/// A name without a slash is a registry's; anything else is an image in one.
pub(super) fn probe(paths: &Paths, name: &str) -> Result<ProbeReport, Failure> {
    let image: Option<Reference> = match name.contains('/') {
        true => Some(
            name.parse()
                .map_err(|error| Failure::new(FailureKind::Usage, error))?,
        ),
        false => None,
    };
    let registry = image.as_ref().map_or(name, |image| image.registry());
    let repository = image.as_ref().map_or("", |image| image.repository().name());
    let logins = caller::login_file(registry, repository);
    let client = Images::open(paths)?
        .clients()
        .get(logins.as_deref())?
        .hasty(ANSWER);
    let probed = runtime::start()?.block_on(client.probe(registry, image.as_ref()));
    probed.map_err(|error| Failure::new(FailureKind::Registry, told(&error)))
}

/// The error's text. The client's advice is to run the doctor, which runs here, so this gives other advice.
fn told(error: &ClientError) -> String {
    match (error.silence(), error.target()) {
        (Some(time), Some(target)) => format!(
            "{target}: it did not answer within {} s; see whether it runs and is reached by this name and port, and what is between \
             this host and it: the network, a firewall, the proxy settings",
            time.as_secs_f64()
        ),
        _ => error.to_string(),
    }
}

/// Prints the report, or why there is none.
pub(super) fn print(report: Option<&ProbeReport>, error: Option<&str>) {
    if let Some(error) = error {
        outln!("FAIL  registry: {error}");
    }
    let Some(registry) = report else { return };
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    outln!(
        "ok    registry {}: {} {}, first answer {:.0} ms, then {:.1} ms",
        registry.registry,
        registry.scheme,
        registry.http_version,
        milliseconds(registry.first_answer),
        milliseconds(registry.next_answer)
    );
    if !registry.accepted {
        outln!(
            "warn  registry {0}: it wants a login; run `xebec login {0}`",
            registry.registry
        );
    }
    match registry.ranges {
        Some(true) => outln!("ok    it answers range requests"),
        Some(false) => outln!(
            "warn  it ignores Range, so images from it are read whole. Use a registry or mirror that honours Range"
        ),
        None => outln!("      name an image in it to see whether it honours Range"),
    }
    if registry.referrers_api == Some(false) {
        outln!("warn  it has no referrers API; Xebec finds indexes by the fallback tag");
    }
}
