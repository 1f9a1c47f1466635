//! End-to-end tests of the binary `xebec`: against a real registry, real runtimes and independent unpackers.
//!
//! `xebec-e2e [FILTER…]` runs the cases whose names contain a filter, `E2E_JOBS` at a time, and ends with a line that counts them;
//! `--list` names them. Cases that take long and little run beside the others, those that mostly wait run after them, and those that
//! measure time or memory run last, one at a time. Each case runs in network, mount and process namespaces of its own and in a directory
//! of its own, under a watchdog: its processes and mounts are gone when it ends, however it ends. Cases need root and the environment
//! that `scripts/e2e.sh` sets up.

mod browser;
mod cases;
mod company;
mod containerd;
mod control_plane;
mod docker;
mod engines;
mod groups;
mod http;
mod kubelet;
mod lab;
mod node;
mod reference_unpackers;
mod registry;
mod runner;
mod status;
mod tree;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let cases = cases::all();
    match arguments.first().map(String::as_str) {
        Some("--list") => {
            cases.iter().for_each(|case| println!("{}", case.name));
            ExitCode::SUCCESS
        }
        Some(runner::AS_INIT) => runner::be_init(&arguments[1..]),
        Some(runner::AS_CASE) => runner::be_case(&cases, &arguments[1..]),
        _ => runner::run_all(&cases, &arguments),
    }
}
