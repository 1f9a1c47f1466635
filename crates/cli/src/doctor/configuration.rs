//! The files in the root directory that a user writes: whether Xebec can use them, and whether nobody else can change what they
//! make it trust.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use xebec_images::clients::Clients;
use xebec_protocol::closed;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings};
use xebec_trust::Policy;

use super::finding::Finding;

/// Permissions by which others change what is not theirs.
const OTHERS_WRITE: u32 = 0o022;

/// Checks `daemon.toml`, `registries.toml`, `trust.toml`, and the keys that the last one names.
pub(super) fn check(paths: &Paths) -> Vec<Finding> {
    let settings = Settings::load(&paths.settings(), &Overrides::new());
    let mut findings = vec![
        file(
            "daemon.toml",
            &paths.settings(),
            settings.map(|_| "valid".to_owned()),
        ),
        file(
            "registries.toml",
            &paths.registries(),
            Clients::new(paths).get(None).map(|_| "valid".to_owned()),
        ),
    ];
    let trust = paths.trust();
    let policy = Policy::load(&trust).and_then(|_| Policy::key_files(&trust));
    let described = policy.as_ref().map(|keys| match keys.len() {
        0 => "valid, no keys".to_owned(),
        1 => "valid, 1 key".to_owned(),
        keys => format!("valid, {keys} keys"),
    });
    findings.push(file("trust.toml", &trust, described));
    let keys = Policy::key_files(&trust).unwrap_or_default();
    findings.extend(keys.iter().filter_map(|(name, file)| key(name, file)));
    findings
}

fn file<E: ToString>(name: &str, path: &Path, checked: Result<String, E>) -> Finding {
    match checked {
        Err(error) => {
            let advice = format!("correct {}; no command works with it before", path.display());
            Finding::broken(name, error.to_string().trim_end().to_owned(), Some(advice))
        }
        Ok(_) if !path.exists() => Finding::good(name, "not there, so defaults hold"),
        Ok(found) => Finding::good(name, format!("{}, {found}", path.display())),
    }
}

/// What is wrong with who can change a trusted key. Whoever can, can make Xebec trust a key of his own.
fn key(name: &str, file: &Path) -> Option<Finding> {
    let path = file.display();
    let status = fs::metadata(file).ok()?;
    let own = rustix::process::geteuid().as_raw();
    let (problem, advice) = if status.mode() & OTHERS_WRITE != 0 {
        let mode = status.mode() & 0o7777;
        (
            format!("others may write to {path} (mode {mode:04o})"),
            format!("see whether it is still your key, then run: chmod go-w {path}"),
        )
    } else if status.uid() != 0 && status.uid() != own {
        (
            format!("{path} belongs to user {}", status.uid()),
            format!("see whether it is still your key, then run: chown {own} {path}"),
        )
    } else {
        let way = closed::replaceable(file)?;
        (
            format!("{path} is below {way}"),
            "another key could be put in its place: move the key into the root directory".to_owned(),
        )
    };
    Some(Finding::broken(
        format!("key {name:?} of trust.toml"),
        problem,
        Some(advice),
    ))
}
