//! Finds the logins of a user: the files of podman and skopeo, then docker's.
//!
//! Source: containers-auth.json(5) and docker's documentation of `docker login`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::credential::{CredentialError, MAX_CONFIG_JSON};
use super::entries::{DockerConfig, find_entry, helper_for, keys_of};

/// The files of the user of this process, in the order in which they are asked. Docker's is the last one. None of them need exist.
pub fn usual_files() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    by_environment(|name| std::env::var_os(name), user)
}

/// Docker's own file: `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`.
pub fn docker_file() -> Option<PathBuf> {
    docker_by_environment(|name| std::env::var_os(name))
}

fn by_environment(variable: impl Fn(&str) -> Option<OsString>, user: u32) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let named = set("REGISTRY_AUTH_FILE").map(PathBuf::from);
    let session = match set("XDG_RUNTIME_DIR") {
        Some(directory) => Path::new(&directory).join("containers/auth.json"),
        None => PathBuf::from(format!("/run/containers/{user}/auth.json")),
    };
    let home = || Some(Path::new(&set("HOME")?).join(".config"));
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let kept = config.map(|directory| directory.join("containers/auth.json"));
    let containers = named.into_iter().chain([session]).chain(kept);
    let mut files: Vec<PathBuf> = Vec::new();
    for file in containers.chain(docker_by_environment(&variable)) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

fn docker_by_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let home = || Some(Path::new(&set("HOME")?).join(".docker"));
    let directory = set("DOCKER_CONFIG").map(PathBuf::from).or_else(home);
    directory.map(|directory| directory.join("config.json"))
}

/// Whether a file has a login for `repository` of `registry`, or names a helper that keeps one. Helpers are not run. A file that
/// is damaged has none.
pub fn has_login(file: &Path, registry: &str, repository: &str) -> bool {
    find_login(file, registry, repository).unwrap_or(false)
}

/// The same.
///
/// # Errors
/// If the file is there but is damaged, or what it has for that repository is.
pub fn find_login(file: &Path, registry: &str, repository: &str) -> Result<bool, CredentialError> {
    let Some(config) = read(file)? else {
        return Ok(false);
    };
    let keys = keys_of(registry);
    if helper_for(config.cred_helpers.iter(), &keys).is_some() {
        return Ok(true);
    }
    // An entry with nothing in it says that the helper has the secret.
    let by_helper = config.creds_store.as_ref().is_some_and(|name| !name.is_empty());
    if by_helper && find_entry(&config.auths, &keys, repository).is_some() {
        return Ok(true);
    }
    Ok(config.credential(file, &keys, repository)?.is_some())
}

/// How many logins a file has, those included that helpers keep; `None` if it is not there.
///
/// # Errors
/// If the file is there but is damaged.
pub fn count_logins(file: &Path) -> Result<Option<usize>, CredentialError> {
    read(file)?.map(|config| config.logins(file)).transpose()
}

fn read(file: &Path) -> Result<Option<DockerConfig>, CredentialError> {
    let failed = |source| CredentialError::Read {
        path: file.to_owned(),
        source,
    };
    let status = match std::fs::metadata(file) {
        Ok(status) => status,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    // A FIFO would be waited for.
    let problem = match (status.is_file(), status.len()) {
        (false, _) => Some("it is no regular file"),
        (true, length) => (length > MAX_CONFIG_JSON).then_some("it has more than a mebibyte"),
    };
    if let Some(problem) = problem {
        return Err(failed(std::io::Error::other(problem)));
    }
    DockerConfig::parse(file, &std::fs::read(file).map_err(failed)?).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_user() {
        let files = |set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| value.into())
            };
            let files = by_environment(variable, 7);
            files
                .into_iter()
                .map(|file| file.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(files(&[]), ["/run/containers/7/auth.json"]);
        assert_eq!(
            files(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", ""), ("DOCKER_CONFIG", "")]),
            [
                "/run/containers/7/auth.json",
                "/h/.config/containers/auth.json",
                "/h/.docker/config.json"
            ]
        );
        assert_eq!(
            files(&[
                ("HOME", "/h"),
                ("REGISTRY_AUTH_FILE", "/r/a.json"),
                ("XDG_RUNTIME_DIR", "/run/user/7"),
                ("XDG_CONFIG_HOME", "/c"),
                ("DOCKER_CONFIG", "/d"),
            ]),
            [
                "/r/a.json",
                "/run/user/7/containers/auth.json",
                "/c/containers/auth.json",
                "/d/config.json"
            ]
        );
    }

    #[test]
    fn a_file_of_a_mebibyte_is_read_and_one_more_byte_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("auth.json");
        let mut text = r#"{"auths": {"r.example": {"auth": "dTpw"}}}"#.to_owned();
        text.push_str(&" ".repeat((1 << 20) - text.len()));
        std::fs::write(&file, &text).unwrap();
        assert_eq!(count_logins(&file).unwrap(), Some(1));
        std::fs::write(&file, text + " ").unwrap();
        let error = count_logins(&file).unwrap_err();
        assert!(error.to_string().contains("more than a mebibyte"), "{error}");
    }

    #[test]
    fn which_file_has_a_login() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("auth.json");
        let has = |json: &str, registry: &str, repository: &str| {
            std::fs::write(&file, json).unwrap();
            has_login(&file, registry, repository)
        };
        let some = r#"{"auths": {"r.example/team": {"auth": "dTpw"}, "empty.example": {}}}"#;
        assert!(has(some, "r.example", "team/app"));
        assert!(!has(some, "r.example", "other/app"));
        assert!(!has(some, "empty.example", "x"));
        let store = r#"{"credsStore": "s", "auths": {"empty.example": {}}}"#;
        assert!(has(store, "empty.example", "x") && !has(store, "r.example", "x"));
        assert!(has(r#"{"credHelpers": {"r.example": "h"}}"#, "r.example", "x"));
        // A host is the same in upper case; a path is not.
        assert!(has(r#"{"credHelpers": {"R.Example": "h"}}"#, "r.example", "x"));
        let upper = r#"{"auths": {"https://R.Example/team": {"auth": "dTpw"}}}"#;
        assert!(has(upper, "r.example", "team/app") && has(upper, "R.EXAMPLE", "team/app"));
    }

    #[test]
    fn a_damaged_file_has_no_login_and_is_told_from_one_without() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("auth.json");
        let find = |json: &str| {
            std::fs::write(&file, json).unwrap();
            (find_login(&file, "r.example", "x"), count_logins(&file))
        };
        for damaged in ["{", "3", r#"{"auths": {"r.example": {"auth": "%"}}}"#] {
            let (found, counted) = find(damaged);
            assert!(found.unwrap_err().is_of_a_file() && counted.is_err(), "{damaged}");
            assert!(!has_login(&file, "r.example", "x"));
        }
        let (found, counted) = find(r#"{"auths": {"other.example": {"auth": "%"}}}"#);
        assert!(!found.unwrap(), "what is not asked for does no harm");
        counted.unwrap_err();
        let (found, counted) =
            find(r#"{"auths": {"r.example": {}, "o.example": null}, "credHelpers": {"h.example": "h"}}"#);
        assert_eq!((found.unwrap(), counted.unwrap()), (false, Some(3)));
        find_login(directory.path(), "r.example", "x").unwrap_err();
        let missing = directory.path().join("missing.json");
        assert!(!find_login(&missing, "r.example", "x").unwrap());
        assert_eq!(count_logins(&missing).unwrap(), None);
    }
}
