//! `xebec login` and `logout`: a login is tried before it is stored, where docker would store it.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xebec_format::docker_hub::registry_name;
use xebec_images::clients::Clients;
use xebec_keeper::client::Daemon;
use xebec_oci::credentials::{
    Credential, CredentialError, Login, LoginFile, docker_file, has_login, usual_files,
};
use xebec_oci::{ClientConfig, ClientError};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::Request;

use crate::args::{LoginArgs, LoginPlace, LogoutArgs};
use crate::bounded::within;
use crate::{prompt, runtime};

/// Longest password that is taken from standard input; tokens of clouds have some KiB.
const MAX_PASSWORD: u64 = 64 << 10;
/// How long a registry is waited for; a person waits, and can try again.
const TIME: Duration = Duration::from_secs(30);
/// How long the daemon may take to forget a login.
const PATIENCE: Duration = Duration::from_secs(5);

/// `xebec login HOST`.
pub(crate) fn login(paths: &Paths, args: &LoginArgs) -> Result<(), Failure> {
    let registry = registry_of(&args.place.registry)?;
    let file = file_of(&args.place)?;
    let (username, password) = ask(args, &registry)?;
    let clients = Clients::new(paths);
    let settings = clients.settings()?;
    let login = Login {
        credential: Credential::Basic {
            username: username.clone(),
            password: password.clone(),
        },
        from: "this command".to_owned(),
    };
    let runtime = runtime::start()?;
    let client = clients.with_login(login)?.for_first_contact();
    let checked = runtime.block_on(async { tokio::time::timeout(TIME, client.check_login(&registry)).await });
    let asks = match checked {
        Ok(checked) => checked.map_err(|error| refused(&registry, &username, &error))?,
        Err(_) => {
            let message = format!(
                "{registry} did not answer within {} s; nothing is stored",
                TIME.as_secs()
            );
            return Err(Failure::new(FailureKind::Registry, message));
        }
    };
    let stored = runtime.block_on(login_file(&file, &settings).store(&registry, &username, &password));
    let place = stored.map_err(|error| not_stored(&error))?;
    outln!("logged in to {registry} as {username}; the login is in {place}");
    forget(paths, &registry);
    if !asks {
        errln!("note: {registry} asks for no login, so it has not said whether this one is right");
    }
    if !is_looked_into(&file, &settings) {
        let file = std::path::absolute(&file).unwrap_or_else(|_| file.clone());
        errln!(
            "note: commands use this login only with REGISTRY_AUTH_FILE={} in their environment",
            file.display()
        );
    }
    for other in asked_before(&file, &registry) {
        errln!(
            "note: the login for {registry} in {} is used instead of this one",
            other.display()
        );
    }
    Ok(())
}

/// `xebec logout HOST`.
pub(crate) fn logout(paths: &Paths, args: &LogoutArgs) -> Result<(), Failure> {
    let registry = registry_of(&args.place.registry)?;
    let file = file_of(&args.place)?;
    let settings = Clients::new(paths).settings()?;
    let removed = runtime::start()?.block_on(login_file(&file, &settings).remove(&registry));
    let was_there = removed.map_err(|error| not_stored(&error))?;
    // Also of a login that another program has removed.
    forget(paths, &registry);
    let others = usual_files().into_iter().filter(|other| *other != file);
    let mut others = others.filter(|other| has_login(other, &registry, ""));
    if was_there {
        outln!(
            "logged out of {registry}: its login is no more in {}",
            file.display()
        );
        others.for_each(|other| {
            errln!(
                "note: there is another login for {registry} in {}",
                other.display()
            );
        });
        return Ok(());
    }
    let elsewhere = others.next().map_or_else(String::new, |other| {
        format!("; there is one in {}, which `--authfile` names", other.display())
    });
    let message = format!("{} has no login for {registry}{elsewhere}", file.display());
    Err(Failure::new(FailureKind::NotFound, message))
}

/// Has the daemon forget logins that it remembers, and tokens for them, and look for logins again.
fn forget(paths: &Paths, registry: &str) {
    let daemon = Daemon::new(paths.clone());
    let asked = within(PATIENCE, move || daemon.ask_running(&Request::ForgetLogins));
    let why = match asked {
        Some(Ok(_)) => return,
        // It does not know the request.
        Some(Err(failure)) if failure.kind == FailureKind::Usage => {
            "it is of an earlier version (`xebec daemon upgrade`)".to_owned()
        }
        Some(Err(failure)) => failure.to_string(),
        None => format!("it did not answer within {} s", PATIENCE.as_secs()),
    };
    errln!(
        "note: the daemon uses what it has of {registry} for some minutes yet: {why}; it forgets it when it ends (`xebec daemon stop`)"
    );
}

/// The registry's host, from the form that users write: also a URL, and Docker Hub by all its names.
fn registry_of(text: &str) -> Result<String, Failure> {
    let bare = text.trim_start_matches("https://").trim_start_matches("http://");
    let bare = bare.trim_end_matches('/');
    let bare = bare
        .strip_suffix("/v1")
        .or_else(|| bare.strip_suffix("/v2"))
        .unwrap_or(bare);
    let bare = bare.to_ascii_lowercase();
    let bare = registry_name(&bare);
    // As a reference would have it.
    let named = xebec_oci::Repository::new(bare, "x");
    if bare.contains('/') || named.is_err() {
        let message = format!(
            "{text:?} is no registry: give its host and port, such as registry.example.com or localhost:5000"
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    Ok(bare.to_owned())
}

fn file_of(place: &LoginPlace) -> Result<PathBuf, Failure> {
    place.authfile.clone().or_else(docker_file).ok_or_else(|| {
        let message = "neither HOME nor DOCKER_CONFIG is set: name the file of logins by --authfile";
        Failure::new(FailureKind::Usage, message)
    })
}

fn login_file(file: &Path, settings: &ClientConfig) -> LoginFile {
    LoginFile::new(
        file,
        settings.helper_directory.as_deref(),
        settings.budget.helper_timeout,
    )
}

/// Whether commands look into a file of logins without being told.
fn is_looked_into(file: &Path, settings: &ClientConfig) -> bool {
    let is_named = |named: &PathBuf| named == file || named.join("config.json") == file;
    usual_files().iter().any(|usual| usual == file) || settings.docker_config.as_ref().is_some_and(is_named)
}

/// Files with a login for a registry that are asked before this one.
fn asked_before(file: &Path, registry: &str) -> Vec<PathBuf> {
    let before = usual_files().into_iter().take_while(|other| other != file);
    before.filter(|other| has_login(other, registry, "")).collect()
}

/// User name and password: from the options, or asked for on the terminal.
fn ask(args: &LoginArgs, registry: &str) -> Result<(String, String), Failure> {
    let wrong = |message: &str| Failure::new(FailureKind::Usage, message);
    if !args.password_stdin && !std::io::stdin().is_terminal() {
        return Err(wrong(
            "standard input is no terminal: give the user name by --username and the password by --password-stdin",
        ));
    }
    let failed = |error| Failure::host("read from the terminal", error);
    let username = match &args.username {
        Some(username) => username.clone(),
        None => prompt::line(&format!("User name for {registry}: ")).map_err(failed)?,
    };
    let password = match args.password_stdin {
        true => password_from_input()?,
        false => prompt::secret(&format!("Password of {username} for {registry}: ")).map_err(failed)?,
    };
    match (username.trim(), password.is_empty()) {
        ("", _) => Err(wrong("the user name is empty")),
        (name, _) if name.contains(':') => Err(wrong("a user name cannot have a colon")),
        (_, true) => Err(wrong("the password is empty")),
        (name, false) => Ok((name.to_owned(), password)),
    }
}

/// All of standard input, without the line's end that `echo` adds.
fn password_from_input() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_PASSWORD + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::host("read the password from standard input", error))?;
    if text.len() as u64 > MAX_PASSWORD {
        return Err(Failure::new(
            FailureKind::Usage,
            "the password has more than 64 KiB",
        ));
    }
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

fn refused(registry: &str, username: &str, error: &ClientError) -> Failure {
    let message = match error {
        ClientError::Unauthorized { cause, .. } => format!(
            "{registry} refuses the login of {username:?} ({cause}); check user name and password. Nothing is stored"
        ),
        error => format!("{error}. Nothing is stored"),
    };
    Failure::new(FailureKind::Registry, message)
}

fn not_stored(error: &CredentialError) -> Failure {
    Failure::new(FailureKind::Host, error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_format::docker_hub::DOCKER_HUB_NAMES;

    use super::*;

    #[test]
    fn registries_as_users_write_them() {
        for (text, registry) in [
            ("registry.example.com", "registry.example.com"),
            ("localhost:5000", "localhost:5000"),
            ("https://registry.example.com/", "registry.example.com"),
            ("https://index.docker.io/v1/", "docker.io"),
            ("docker.io", "docker.io"),
            ("[::1]:5000", "[::1]:5000"),
        ] {
            assert_eq!(registry_of(text).unwrap(), registry);
        }
        for name in DOCKER_HUB_NAMES {
            for text in [name.to_owned(), format!("https://{name}/v1/"), format!("{name}/")] {
                assert_eq!(registry_of(&text).unwrap(), "docker.io", "{text}");
            }
        }
        for wrong in ["", "registry.example.com/team", "a b", "https://"] {
            assert!(registry_of(wrong).is_err(), "{wrong}");
        }
    }
}
