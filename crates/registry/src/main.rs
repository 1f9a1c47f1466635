//! The binary `xebec-registry`: reads the command line and does what it says.
//!
//! * [`args`]: the command line; [`paperwork`]: completion scripts and man pages; [`program`]: what all commands need.
//! * A file for each command, such as [`serve`], [`collect`] and [`scrub`]; [`moved`] tells what `import` and `mirror` have moved.
//! * [`mod@print`]: the output, which survives a closed pipe; [`progress`]: the progress of a command; [`logging`]: the log.
//!
//! Promises: a command exits with 0 if all is well, 1 at an error, 2 if the command line is wrong, 3 if something that is kept is damaged or missing,
//! 4 if a backup lacks something only since a place cannot be read now.
//! What it prints for a program (`--json`) is one object.
//!
//! May use: `registry-server`, and the crates below it that know no hosts. No crate uses this one.

#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, for its macros: all other modules print with them.
#[macro_use]
mod print;

mod args;
mod backup;
mod collect;
mod copies;
mod doctor;
mod import;
mod logging;
mod mirror;
mod moved;
mod paperwork;
mod program;
mod progress;
mod scrub;
mod serve;
mod space;
mod users;

use std::process::ExitCode;

use clap::Parser as _;
use xebec_registry_server::config::Config;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    xebec_kernel::memory::share_arenas();
    let cli = Cli::parse();
    let well = |outcome: anyhow::Result<()>| outcome.map(|()| ExitCode::SUCCESS);
    let outcome = match cli.command {
        Command::Serve(args) => well(serve::serve(&args, cli.verbose)),
        Command::CheckConfig { file } => well(check(&file)),
        Command::Gc(args) => well(collect::collect(&args, cli.verbose)),
        Command::Scrub(args) => scrub::scrub(&args, cli.verbose),
        Command::Space(args) => well(space::space(&args, cli.verbose)),
        Command::Copies(args) => well(copies::copies(&args, cli.verbose)),
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

fn check(file: &std::path::Path) -> anyhow::Result<()> {
    Config::read(file)?;
    outln!("{}: nothing is wrong with it", file.display());
    Ok(())
}
