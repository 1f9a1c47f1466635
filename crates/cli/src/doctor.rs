//! `xebec doctor`: what this host and a registry can do, and what to do about what they cannot.

use std::process::ExitCode;

use serde::Serialize;
use xebec_images::images::Images;
use xebec_kernel::features::{self, Check, Outcome};
use xebec_oci::{ProbeReport, Reference};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::{DoctorArgs, ImageArgs};
use crate::{caller, runtime, text};

#[derive(Serialize)]
struct Report {
    host: Vec<HostCheck>,
    registry: Option<ProbeReport>,
    registry_error: Option<String>,
}

/// A check of the host, for scripts.
#[derive(Serialize)]
struct HostCheck {
    name: &'static str,
    /// `good`, `poor` or `missing`.
    outcome: &'static str,
    detail: String,
    /// What to do, unless it is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

impl From<Check> for HostCheck {
    fn from(check: Check) -> Self {
        let outcome = match check.outcome {
            Outcome::Good => "good",
            Outcome::Poor => "poor",
            Outcome::Missing => "missing",
        };
        let advice = (check.outcome != Outcome::Good).then_some(check.advice);
        Self {
            name: check.name,
            outcome,
            detail: check.detail,
            advice,
        }
    }
}

/// `xebec doctor [REGISTRY|IMAGE]`. Fails when something that Xebec cannot do without is missing.
pub(crate) fn doctor(paths: &Paths, args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let host: Vec<HostCheck> = features::check_all(paths.root())
        .into_iter()
        .map(Into::into)
        .collect();
    let (registry, registry_error) = match args.registry.as_deref().map(|name| probe(paths, name)) {
        None => (None, None),
        Some(Ok(report)) => (Some(report), None),
        Some(Err(failure)) => (None, Some(failure.message)),
    };
    let report = Report {
        host,
        registry,
        registry_error,
    };
    if args.json {
        text::print_json(&report)?
    } else {
        print_report(&report)
    }
    let failed = report.host.iter().any(|finding| finding.outcome == "missing");
    Ok(match (failed, &report.registry_error) {
        (true, _) => ExitCode::from(FailureKind::Host.exit_code()),
        (false, Some(_)) => ExitCode::from(FailureKind::Registry.exit_code()),
        (false, None) => ExitCode::SUCCESS,
    })
}

/// A name without a slash is a registry's; anything else is an image in one.
fn probe(paths: &Paths, name: &str) -> Result<ProbeReport, Failure> {
    let request = caller::image_request(&ImageArgs {
        image: name.to_owned(),
        platform: None,
    });
    let client = Images::open(paths)?
        .clients()
        .get(request.docker_config.as_deref())?;
    let image: Option<Reference> = match name.contains('/') {
        true => Some(
            name.parse()
                .map_err(|error| Failure::new(FailureKind::Usage, error))?,
        ),
        false => None,
    };
    let registry = image.as_ref().map_or(name, |image| image.registry());
    let probed = runtime::start()?.block_on(client.probe(registry, image.as_ref()));
    probed.map_err(|error| Failure::new(FailureKind::Registry, error))
}

fn print_report(report: &Report) {
    for finding in &report.host {
        let sign = match finding.outcome {
            "good" => "ok  ",
            "poor" => "warn",
            _ => "FAIL",
        };
        outln!("{sign}  {}: {}", finding.name, finding.detail);
        if let Some(advice) = &finding.advice {
            outln!("      {advice}");
        }
    }
    if let Some(error) = &report.registry_error {
        outln!("FAIL  registry: {error}");
    }
    let Some(registry) = &report.registry else { return };
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
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
            "warn  registry {}: it wants credentials; log in with `docker login`",
            registry.registry
        );
    }
    match registry.ranges {
        Some(true) => outln!("ok    it answers range requests"),
        Some(false) => outln!(
            "FAIL  it ignores Range, so images from it are read whole. Use a registry or mirror that honours Range"
        ),
        None => outln!("      name an image in it to see whether it honours Range"),
    }
    if registry.referrers_api == Some(false) {
        outln!("warn  it has no referrers API; Xebec finds indexes by the fallback tag");
    }
}
