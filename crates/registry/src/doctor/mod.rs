//! `xebec-registry doctor`: whether this registry can do its work, a line for each thing that it needs, with the cause and the next step of
//! what does not work. It changes nothing, but for what opening the store does: the schema of the database is brought up to date, as
//! `serve` does. On a place for copies it writes a few bytes and deletes them again.

mod certificate;
mod found;
mod host;
mod others;
mod places;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use xebec_registry_server::config::Config;

use self::found::{Found, State};
use crate::args::Doctor;

/// Looks at everything.
pub(crate) fn doctor(args: &Doctor) -> anyhow::Result<ExitCode> {
    let found = match crate::program::configured(&args.place) {
        Ok(config) => {
            // A place that hangs was waited for long enough.
            let examined = async { Ok(examine(args, &config).await) };
            crate::program::carry_out_within(Duration::ZERO, examined)?
        }
        Err(error) => vec![Found::broken("configuration", error.to_string())],
    };
    let is_well = found.iter().all(|found| found.state != State::Broken);
    match args.json {
        true => {
            let checks: Vec<Value> = found
                .iter()
                .map(|found| json!({"what": found.what, "state": found.state.name(), "said": found.said}))
                .collect();
            outln!("{}", json!({"well": is_well, "checks": checks}));
        }
        false => {
            for Found { what, state, said } in &found {
                outln!("{:<7} {what}: {said}", state.name());
            }
        }
    }
    Ok(match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn examine(args: &Doctor, config: &Config) -> Vec<Found> {
    let mut found = vec![Found::well(
        "configuration",
        match &args.place.config {
            Some(file) => format!("nothing is wrong with {}", file.display()),
            None => "none is named, so the defaults hold".to_owned(),
        },
    )];
    found.push(host::clock(&config.store.root));
    found.extend(host::directory(&config.store.root, config.store.reserve));
    found.extend(host::store(config).await);
    found.extend(places::places(config, args.patience.0).await);
    found.extend(host::listening(config));
    found.extend(certificate::certificate(config));
    found.extend(others::upstreams(config).await);
    found.extend(others::keys(config).await);
    found
}
