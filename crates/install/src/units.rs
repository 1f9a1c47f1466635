//! The units of `packaging/systemd`, with the program where it is on this host.

use std::path::Path;

/// Name and text of each unit.
const UNITS: [(&str, &str); 3] = [
    (
        "xebec.service",
        include_str!("../../../packaging/systemd/xebec.service"),
    ),
    (
        "xebec.socket",
        include_str!("../../../packaging/systemd/xebec.socket"),
    ),
    (
        "xebec-containers.service",
        include_str!("../../../packaging/systemd/xebec-containers.service"),
    ),
];

/// Name and text of each unit, for a program and its directories.
pub(crate) fn units(program: &Path, root: &Path, run: &Path) -> Vec<(&'static str, String)> {
    let place = |text: &str| placed(text, program, root, run);
    UNITS.iter().map(|(name, text)| (*name, place(text))).collect()
}

/// A unit's text for a program and its directories.
pub(crate) fn placed(text: &str, program: &Path, root: &Path, run: &Path) -> String {
    let mut text = text.replace("/usr/bin/xebec", &program.to_string_lossy());
    text = text.replace("/run/xebec/", &format!("{}/", run.display()));
    if root != Path::new("/var/lib/xebec") || run != Path::new("/run/xebec") {
        let variables = format!(
            "[Service]\nEnvironment=XEBEC_ROOT={}\nEnvironment=XEBEC_RUN={}",
            root.display(),
            run.display()
        );
        text = text.replace("[Service]", &variables);
    }
    text
}
