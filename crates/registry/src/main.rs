//! The binary `xebec-registry`: reads the command line and serves.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::SUCCESS
}
