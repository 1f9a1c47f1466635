//! Files of logins: those of the user who asks, and those that the configuration names.

use std::path::PathBuf;

use xebec_images::clients::Clients;
use xebec_oci::credentials::{count_logins, usual_files};
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings};

use super::finding::Finding;

/// A finding for each file that is there, in the order in which commands look into them.
pub(super) fn check(paths: &Paths) -> Vec<Finding> {
    let mut files = usual_files();
    // Another check reports errors in the settings themselves.
    let registries = Clients::new(paths).settings().ok();
    let settings = Settings::load(&paths.settings(), &Overrides::new()).ok();
    let named = [
        registries.and_then(|settings| settings.docker_config),
        settings.and_then(|settings| settings.snapshotter.docker_config),
    ];
    for file in named.into_iter().flatten() {
        let file = match file.is_dir() {
            true => file.join("config.json"),
            false => file,
        };
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files.into_iter().filter_map(look).collect()
}

fn look(file: PathBuf) -> Option<Finding> {
    let name = "logins";
    match count_logins(&file) {
        Ok(None) => None,
        Ok(Some(1)) => Some(Finding::good(name, format!("{}, 1 login", file.display()))),
        Ok(Some(logins)) => Some(Finding::good(
            name,
            format!("{}, {logins} logins", file.display()),
        )),
        Err(error) => {
            let advice = format!(
                "no login from it is used: correct {0} or remove it, then log in again by `xebec login --authfile {0} HOST`",
                file.display()
            );
            Some(Finding::poor(name, error.to_string(), advice))
        }
    }
}
