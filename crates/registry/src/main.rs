//! The binary `xebec-registry`: reads the command line and does what it says.

#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, for its macros: all other modules print with them.
#[macro_use]
mod print;

mod args;
mod collect;
mod logging;
mod paperwork;
mod serve;
mod users;

use std::process::ExitCode;

use clap::Parser as _;
use xebec_registry::config::{Config, ConfigError};

use crate::args::{Cli, Command, Place};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(args) => serve::serve(&args, cli.verbose),
        Command::CheckConfig { file } => check(&file),
        Command::Gc(args) => collect::collect(&args, cli.verbose),
        Command::User(args) => users::carry_out(&args),
        Command::Completion { shell } => {
            out!("{}", paperwork::completion(shell));
            Ok(())
        }
        Command::Man { dir } => paperwork::man(&dir),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errln!("xebec-registry: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The configuration, with what the command line says instead.
fn configured(place: &Place) -> Result<Config, ConfigError> {
    let mut config = match &place.config {
        Some(file) => Config::read(file)?,
        None => Config::usual(),
    };
    if let Some(root) = &place.root {
        config.store.root.clone_from(root);
    }
    Ok(config)
}

fn check(file: &std::path::Path) -> anyhow::Result<()> {
    Config::read(file)?;
    outln!("{}: nothing is wrong with it", file.display());
    Ok(())
}
