//! Things that belong to the caller rather than to Xebec. Files that the caller asked for by name have the permissions that the
//! caller's mask leaves, though Xebec closes its own files to others. Requests carry the caller's credentials.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use xebec_kernel::file::write_for_this_boot;
use xebec_kernel::process::with_umask;
use xebec_oci::credentials::{CredentialError, docker_file, find_login, usual_files};
use xebec_oci::{Reference, Repository};
use xebec_protocol::closed;
use xebec_protocol::wire::ImageRequest;

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

/// Writes a file for the caller. One that is not there yet appears whole, for scripts that wait for it; what is there (a file, a pipe, a
/// terminal) is written to as it is.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]> + Send) -> io::Result<()> {
    let write = || match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_for_this_boot(path, contents.as_ref()),
        _ => std::fs::write(path, contents),
    };
    match MASK.get() {
        Some(mask) => with_umask(*mask, write)?,
        None => write(),
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

pub(crate) fn login_of(repository: &Repository) -> Option<PathBuf> {
    login_file(repository.registry(), repository.name())
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
    ImageRequest {
        platform: args.platform.clone(),
        docker_config: reference.and_then(|reference| login_of(reference.repository())),
        ..ImageRequest::named(&args.image)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_new_file_appears_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stats");
        let contents = vec![7; 64 << 20];
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let limit = Instant::now() + Duration::from_secs(60);
                while !path.exists() {
                    assert!(Instant::now() < limit, "no file");
                }
                std::fs::read(&path).unwrap().len()
            });
            write(&path, &contents).unwrap();
            assert_eq!(reader.join().unwrap(), contents.len());
        });
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_there_stays_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "what was there before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
    }
}
