//! The files in the root directory that a user writes: whether Xebec can use them, and whether nobody else can change the files
//! that they make it trust.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use xebec_images::clients::Clients;
use xebec_protocol::closed;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings};
use xebec_trust::Policy;

use super::finding::Finding;

/// Permissions by which other users change files that are not theirs.
const OTHERS_WRITE: u32 = 0o022;

/// Checks `daemon.toml`, `registries.toml`, `trust.toml`, and which users can change the files that the last two name.
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
    findings.extend(
        keys.iter()
            .filter_map(|(name, file)| changeable(&format!("key {name:?} of trust.toml"), "your key", file)),
    );
    findings.extend(named_by_registries(paths));
    findings
}

/// The files that `registries.toml` names. A user who can change one can make Xebec trust a registry, or run a program, of their own.
fn named_by_registries(paths: &Paths) -> Vec<Finding> {
    let Ok(settings) = Clients::new(paths).settings() else {
        return Vec::new();
    };
    let certificates = settings.ca_files.iter().map(|file| ("ca_files", file));
    let logins = settings.docker_config.iter().map(|file| ("docker_config", file));
    let helpers = settings
        .helper_directory
        .iter()
        .map(|file| ("helper_directory", file));
    let providers = settings.credential_providers.iter();
    let providers = providers.flat_map(|providers| {
        [
            ("credential_providers", &providers.config),
            ("credential_providers", &providers.directory),
        ]
    });
    let named = certificates.chain(logins).chain(helpers).chain(providers);
    named
        .filter_map(|(setting, file)| {
            changeable(
                &format!("{setting} of registries.toml"),
                "what you put there",
                file,
            )
        })
        .collect()
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

/// A finding if another user can change a file that Xebec trusts. That user could make Xebec trust a key of their own.
fn changeable(name: &str, what: &str, file: &Path) -> Option<Finding> {
    let path = file.display();
    let status = fs::metadata(file).ok()?;
    let own = rustix::process::geteuid().as_raw();
    let (problem, advice) = if status.mode() & OTHERS_WRITE != 0 {
        let mode = status.mode() & 0o7777;
        (
            format!("others may write to {path} (mode {mode:04o})"),
            format!("see whether it is still {what}, then run: chmod go-w {path}"),
        )
    } else if status.uid() != 0 && status.uid() != own {
        (
            format!("{path} belongs to user {}", status.uid()),
            format!("see whether it is still {what}, then run: chown {own} {path}"),
        )
    } else {
        let way = closed::replaceable(file)?;
        (
            format!("{path} is below {way}"),
            "another could be put in its place: move it into the root directory".to_owned(),
        )
    };
    Some(Finding::broken(name, problem, Some(advice)))
}
