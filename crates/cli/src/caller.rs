//! Things that belong to the caller rather than to Xebec. Files that the caller asked for by name have the permissions that the
//! caller's mask leaves, though Xebec closes its own files to others. Requests carry the caller's credentials.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use xebec_kernel::process::with_umask;
use xebec_oci::Reference;
use xebec_oci::credentials::{CredentialError, docker_file, find_login, usual_files};
use xebec_protocol::closed;
use xebec_protocol::wire::{ImageRequest, PullPolicy};

use crate::args::ImageArgs;

/// The mask that the caller had.
static MASK: OnceLock<u32> = OnceLock::new();
/// Damaged files of logins are named once, however many images a command asks for.
static NAMED: Once = Once::new();

/// From here on the files that this process makes are closed to other users. Called before the first file is made.
pub(crate) fn close_files() {
    let before = closed::add_closed_files();
    let _ = MASK.set(before);
}

/// From here on all users of the host may read the files that this process makes, and so do files of the programs that it starts: that is
/// so on every host, whichever user installs.
pub(crate) fn make_usual_files() {
    closed::add_usual_files();
}

/// Writes a file for the caller.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]> + Send) -> io::Result<()> {
    match MASK.get() {
        Some(mask) => with_umask(*mask, || std::fs::write(path, contents))?,
        None => std::fs::write(path, contents),
    }
}

/// The caller's file with a login for `repository` of `registry`. If no file has one it is the first that is damaged, which a refusal
/// names then, else docker's. Says which damaged files are passed over.
pub(crate) fn login_file(registry: &str, repository: &str) -> Option<PathBuf> {
    let (mut found, mut damaged) = (None, Vec::new());
    for file in usual_files() {
        match find_login(&file, registry, repository) {
            Ok(false) => {}
            Ok(true) => {
                found = Some(file);
                break;
            }
            Err(error) => damaged.push((file, error)),
        }
    }
    warn_of(&damaged);
    let damaged = damaged.into_iter().next().map(|(file, _)| file);
    let file = found
        .or(damaged)
        .or_else(docker_file)
        .filter(|file| file.is_file())?;
    // The daemon has another working directory.
    std::path::absolute(file).ok()
}

fn warn_of(damaged: &[(PathBuf, CredentialError)]) {
    if damaged.is_empty() {
        return;
    }
    NAMED.call_once(|| {
        for (_, error) in damaged {
            errln!("xebec: warning: {error}; no login from it is used: correct or remove it");
        }
    });
}

/// The image as the daemon is asked for it, with the caller's credentials.
pub(crate) fn image_request(args: &ImageArgs) -> ImageRequest {
    let reference = args.image.parse::<Reference>().ok();
    let docker_config =
        reference.and_then(|reference| login_file(reference.registry(), reference.repository().name()));
    ImageRequest {
        reference: args.image.clone(),
        platform: args.platform.clone(),
        docker_config,
        pull: PullPolicy::Always,
        part: None,
        manifest: None,
    }
}
