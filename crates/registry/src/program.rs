//! What all commands need: threads, and the configuration.

use anyhow::Context as _;
use xebec_registry_server::config::{Config, ConfigError};

use crate::args::Place;

/// Of a command that has found something damaged or missing in what is kept.
pub(crate) const DAMAGED: u8 = 3;
/// Of a command that lacks something only since a place is away: try again later.
pub(crate) const AWAY: u8 = 4;

/// The program's threads.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build();
    runtime.context("cannot start the program's threads")
}

/// The configuration, with what the command line says instead.
pub(crate) fn configured(place: &Place) -> Result<Config, ConfigError> {
    let mut config = match &place.config {
        Some(file) => Config::read(file)?,
        None => Config::usual(),
    };
    if let Some(root) = &place.root {
        config.store.root.clone_from(root);
    }
    Ok(config)
}
