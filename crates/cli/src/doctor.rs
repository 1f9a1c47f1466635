//! `xebec doctor`: the abilities of this host and of a registry, and the remedies for those that are missing.

mod configuration;
mod finding;
mod logins;
mod networks;
mod registry;
mod runtimes;

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use xebec_kernel::features;
use xebec_oci::ProbeReport;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::DoctorArgs;
use crate::text;
use finding::Finding;

#[derive(Serialize)]
struct Report {
    host: Vec<Finding>,
    registry: Option<ProbeReport>,
    registry_error: Option<String>,
}

/// `xebec doctor [REGISTRY|IMAGE]`. Fails when something is broken, or missing that Xebec cannot do without.
pub(crate) fn doctor(root: &Path, run: &Path, args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let paths = Paths::create(root, run).map_err(|error| error.to_string());
    let registry = match (&args.registry, &paths) {
        (None, _) => None,
        (Some(name), Ok(paths)) => Some(registry::probe(paths, name).map_err(|failure| failure.message)),
        (Some(_), Err(_)) => Some(Err(
            "not tried, for there is no usable root and run directory".to_owned()
        )),
    };
    let (registry, registry_error) = match registry {
        None => (None, None),
        Some(Ok(report)) => (Some(report), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let report = Report {
        host: host(paths.as_ref()),
        registry,
        registry_error,
    };
    if args.json {
        text::print_json(&report)?
    } else {
        report.host.iter().for_each(Finding::print);
        registry::print(report.registry.as_ref(), report.registry_error.as_deref());
    }
    let failed = report.host.iter().any(Finding::is_broken);
    Ok(match (failed, &report.registry_error) {
        (true, _) => ExitCode::from(FailureKind::Host.exit_code()),
        (false, Some(_)) => ExitCode::from(FailureKind::Registry.exit_code()),
        (false, None) => ExitCode::SUCCESS,
    })
}

fn host(paths: Result<&Paths, &String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(problem) = paths {
        // Its text has the remedy.
        findings.push(Finding::broken("directories", problem.clone(), None));
    }
    let directory = paths.ok().map(Paths::root);
    findings.extend(features::check_all(directory).into_iter().map(Finding::from));
    findings.push(runtimes::check());
    findings.push(networks::check());
    if let Ok(paths) = paths {
        findings.extend(configuration::check(paths));
        findings.extend(logins::check(paths));
    }
    findings
}
