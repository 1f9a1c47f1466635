//! The binary `xebec-registry`: reads the command line and does what it says.

#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, for its macros: all other modules print with them.
#[macro_use]
mod print;

mod args;
mod backup;
mod collect;
mod doctor;
mod import;
mod logging;
mod mirror;
mod moved;
mod paperwork;
mod progress;
mod scrub;
mod serve;
mod space;
mod users;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use xebec_registry_server::config::{Config, ConfigError};

use crate::args::{Cli, Command, Place};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let well = |outcome: anyhow::Result<()>| outcome.map(|()| ExitCode::SUCCESS);
    let outcome = match cli.command {
        Command::Serve(args) => well(serve::serve(&args, cli.verbose)),
        Command::CheckConfig { file } => well(check(&file)),
        Command::Gc(args) => well(collect::collect(&args, cli.verbose)),
        Command::Scrub(args) => scrub::scrub(&args, cli.verbose),
        Command::Space(args) => well(space::space(&args, cli.verbose)),
        Command::Backup(args) => backup::backup(&args, cli.verbose),
        Command::Restore(args) => backup::restore(&args, cli.verbose),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Import(args) => well(import::import(&args, cli.verbose)),
        Command::Mirror(args) => well(mirror::mirror(&args, cli.verbose)),
        Command::User(args) => well(users::carry_out(&args)),
        Command::Completion { shell } => {
            out!("{}", paperwork::completion(shell));
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { dir } => well(paperwork::man(&dir)),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            errln!("xebec-registry: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Of a command that has found something damaged or missing in what is kept.
const DAMAGED: u8 = 3;

/// The program's threads.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build();
    runtime.context("cannot start the program's threads")
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
