//! Files that a package installs beside the program, made from the command line's own description: man pages and completion scripts.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;

/// The name of the program, for shells.
const PROGRAM: &str = "xebec-registry";

/// The completion script for a shell.
pub(crate) fn completion(shell: Shell) -> String {
    // clap panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a man page for each command into a directory.
pub(crate) fn man(directory: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(Cli::command(), directory).with_context(|| {
        format!(
            "cannot write man pages to {}: make it first, or name another directory",
            directory.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_man_page_and_is_completed() {
        let directory = tempfile::tempdir().unwrap();
        man(directory.path()).unwrap();
        let script = completion(clap_complete::Shell::Bash);
        let mut command = Cli::command();
        command.build();
        for command in command.get_subcommands() {
            let name = command.get_name();
            assert!(script.contains(&format!(",{name})\n")), "{name}: {script}");
            if name != "help" {
                let page = directory.path().join(format!("xebec-registry-{name}.1"));
                let page = std::fs::read_to_string(page).unwrap();
                assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
            }
        }
    }
}
