//! The OCI runtime, without which `xebec run` and `xebec record` start nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use super::finding::Finding;

const NAME: &str = "container runtime";
const ADVICE: &str = "`xebec run` and `xebec record` need runc or crun: install one of them (Debian: apt-get install runc); \
                      `xebec mount` and containerd do without";

/// The first that is installed must say its version: that one is used.
pub(super) fn check() -> Finding {
    let installed = xebec_container::installed_runtimes();
    let Some(first) = installed.first() else {
        let detail = "neither runc nor crun is in PATH or an sbin directory".to_owned();
        return Finding::broken(NAME, detail, Some(ADVICE.to_owned()));
    };
    match version(first) {
        Ok(version) => Finding::good(NAME, format!("{}, {version}", first.display())),
        Err(problem) => {
            let detail = format!("{} does not run: {problem}", first.display());
            Finding::broken(
                NAME,
                detail,
                Some("install it again, or install another".to_owned()),
            )
        }
    }
}

fn version(program: &Path) -> Result<String, String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true => Ok(text.lines().next().unwrap_or("without a version").to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!(
                "{} {}",
                output.status,
                said.lines().next().unwrap_or_default()
            ))
        }
    }
}
