//! The AppArmor profile and the SELinux label of a container, on hosts that have these security modules.
//!
//! AppArmor: the first profile for containers that is loaded, Xebec's or another engine's. Without one a
//! container is unconfined, as the rest of that host is. SELinux: the types that the host's policy names for
//! containers (`lxc_contexts`, which docker and podman read, too), with two random categories, so that a
//! container cannot access the files of another one.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::ConfinementError;
use crate::security_option::SecurityOption;

/// Profiles for containers, in order of preference: one for Xebec, docker's, containerd's, podman's. A name
/// that ends with `-` is followed by a version.
const PROFILES: [&str; 4] = [
    "xebec-default",
    "docker-default",
    "cri-containerd.apparmor.d",
    "containers-default-",
];

/// How much of the list of profiles is read. A host has some hundred, of less than 100 bytes each.
const LIST_LIMIT: u64 = 1 << 20;

/// How many categories policies have (`c0` to `c1023`).
const CATEGORIES: u16 = 1024;

/// The labels of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The AppArmor profile of its processes.
    pub apparmor: Option<String>,
    /// The SELinux labels of its processes, and of its files.
    pub selinux: Option<(String, String)>,
}

impl Labels {
    /// The labels of a container on the host whose root directory is `host`.
    pub(crate) fn decide(host: &Path, options: &[SecurityOption]) -> Result<Self, ConfinementError> {
        Ok(Self {
            apparmor: apparmor(host, options)?,
            selinux: selinux(host, options)?,
        })
    }
}

fn apparmor(host: &Path, options: &[SecurityOption]) -> Result<Option<String>, ConfinementError> {
    let wanted = options.iter().rev().find_map(|option| match option {
        SecurityOption::AppArmor(profile) => Some(Some(profile)),
        SecurityOption::AppArmorUnconfined => Some(None),
        _ => None,
    });
    let is_on = fs::read(host.join("sys/module/apparmor/parameters/enabled"))
        .is_ok_and(|text| text.starts_with(b"Y"));
    let missing = |profile: &str, reason| ConfinementError::SecurityOption {
        option: format!("apparmor={profile}"),
        reason,
    };
    match wanted {
        Some(None) if is_on => Ok(Some("unconfined".into())),
        Some(None) => Ok(None),
        Some(Some(profile)) if !is_on => Err(missing(profile, "this host has no AppArmor; leave it out".into())),
        Some(Some(profile)) => match loaded(host) {
            // If the list cannot be read, the runtime reports a missing profile.
            Some(loaded) if !loaded.contains(profile) => Err(missing(
                profile,
                "no such profile is loaded; load it (apparmor_parser -r FILE), or choose one that `aa-status` lists".into(),
            )),
            _ => Ok(Some(profile.clone())),
        },
        None if is_on => {
            let loaded = loaded(host).unwrap_or_default();
            let first = |name: &&str| match name.ends_with('-') {
                true => loaded.iter().find(|known| known.starts_with(*name)),
                false => loaded.iter().find(|known| known == name),
            };
            Ok(PROFILES.iter().find_map(first).cloned())
        }
        None => Ok(None),
    }
}

/// The profiles that are loaded. `None` if the list cannot be read.
fn loaded(host: &Path) -> Option<Vec<String>> {
    use std::io::Read;
    let mut text = String::new();
    let list = fs::File::open(host.join("sys/kernel/security/apparmor/profiles")).ok()?;
    list.take(LIST_LIMIT).read_to_string(&mut text).ok()?;
    // `name (mode)`.
    let names = text
        .lines()
        .filter_map(|line| line.rsplit_once(" ("))
        .map(|(name, _)| name.to_owned());
    Some(names.collect())
}

fn selinux(host: &Path, options: &[SecurityOption]) -> Result<Option<(String, String)>, ConfinementError> {
    let is_asked_for = options
        .iter()
        .find(|option| matches!(option, SecurityOption::Label { .. }));
    if options.contains(&SecurityOption::LabelDisable) {
        return Ok(None);
    }
    if !host.join("sys/fs/selinux/enforce").exists() {
        return match is_asked_for {
            None => Ok(None),
            Some(_) => Err(ConfinementError::SecurityOption {
                option: "label".into(),
                reason: "this host has no SELinux; leave it out".into(),
            }),
        };
    }
    let (mut process, mut file) = types(host);
    let categories = categories()?;
    for label in [&mut process, &mut file] {
        if let Some(level) = label.get_mut(3) {
            *level = format!("s0:{categories}");
        }
    }
    for option in options {
        let SecurityOption::Label { part, value } = option else {
            continue;
        };
        if let Some(its) = process.get_mut(*part) {
            its.clone_from(value);
        }
        // Files have one role, and other types than processes.
        if matches!(part, 0 | 3)
            && let Some(its) = file.get_mut(*part)
        {
            its.clone_from(value);
        }
    }
    Ok(Some((process.join(":"), file.join(":"))))
}

/// The labels of processes and of files that the host's policy names for containers, in their parts.
fn types(host: &Path) -> (Vec<String>, Vec<String>) {
    let policy = fs::read_to_string(host.join("etc/selinux/config")).unwrap_or_default();
    let policy = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("SELINUXTYPE="));
    let policy = policy.map_or("targeted", str::trim);
    let path: PathBuf = host
        .join("etc/selinux")
        .join(policy)
        .join("contexts/lxc_contexts");
    let text = fs::read_to_string(path).unwrap_or_default();
    let named = |name: &str, default: &str| -> Vec<String> {
        let line = text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
        });
        let label = line.filter(|label| label.split(':').count() >= 4);
        label
            .unwrap_or_else(|| default.to_owned())
            .splitn(4, ':')
            .map(str::to_owned)
            .collect()
    };
    (
        named("process", "system_u:system_r:container_t:s0"),
        named("file", "system_u:object_r:container_file_t:s0"),
    )
}

/// Two categories that differ, the lower one first.
fn categories() -> Result<String, ConfinementError> {
    let mut bytes = [0_u8; 4];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| ConfinementError::Random(error.into()))?;
    let [a, b, c, d] = bytes;
    let one = u16::from_le_bytes([a, b]) % CATEGORIES;
    let other = (one + 1 + u16::from_le_bytes([c, d]) % (CATEGORIES - 1)) % CATEGORIES;
    Ok(format!("c{},c{}", one.min(other), one.max(other)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A host with these files.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        host
    }

    fn options(words: &[&str]) -> Vec<SecurityOption> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    const ON: (&str, &str) = ("sys/module/apparmor/parameters/enabled", "Y\n");
    const LIST: &str = "sys/kernel/security/apparmor/profiles";

    #[test]
    fn the_first_loaded_profile_for_containers_is_used() {
        let profile = |files: &[(&str, &str)], words: &[&str]| {
            Labels::decide(host(files).path(), &options(words)).map(|labels| labels.apparmor)
        };
        assert_eq!(profile(&[], &[]).unwrap(), None);
        assert_eq!(profile(&[], &["apparmor=unconfined"]).unwrap(), None);
        assert!(
            profile(&[], &["apparmor=mine"])
                .unwrap_err()
                .to_string()
                .contains("no AppArmor")
        );
        let off = ("sys/module/apparmor/parameters/enabled", "N\n");
        assert_eq!(
            profile(&[off, (LIST, "docker-default (enforce)\n")], &[]).unwrap(),
            None
        );
        let some = (
            LIST,
            "/usr/bin/man (enforce)\ncontainers-default-0.57.4 (enforce)\ndocker-default (enforce)\n",
        );
        assert_eq!(profile(&[ON, some], &[]).unwrap().unwrap(), "docker-default");
        let podmans = (
            LIST,
            "/usr/bin/man (enforce)\ncontainers-default-0.57.4 (enforce)\n",
        );
        assert_eq!(
            profile(&[ON, podmans], &[]).unwrap().unwrap(),
            "containers-default-0.57.4"
        );
        let own = (LIST, "docker-default (enforce)\nxebec-default (enforce)\n");
        assert_eq!(profile(&[ON, own], &[]).unwrap().unwrap(), "xebec-default");
        assert_eq!(profile(&[ON, (LIST, "x (enforce)\n")], &[]).unwrap(), None);
        assert_eq!(profile(&[ON], &[]).unwrap(), None);
        assert_eq!(
            profile(&[ON, some], &["apparmor=unconfined"]).unwrap().unwrap(),
            "unconfined"
        );
        assert_eq!(
            profile(&[ON, some], &["apparmor=docker-default"])
                .unwrap()
                .unwrap(),
            "docker-default"
        );
        let error = profile(&[ON, some], &["apparmor=mine"]).unwrap_err().to_string();
        assert!(
            error.contains("mine") && error.contains("apparmor_parser"),
            "{error}"
        );
    }

    const SELINUX: (&str, &str) = ("sys/fs/selinux/enforce", "1");

    #[test]
    fn a_label_has_the_types_of_the_policy_and_its_own_categories() {
        let label = |files: &[(&str, &str)], words: &[&str]| {
            Labels::decide(host(files).path(), &options(words)).map(|labels| labels.selinux)
        };
        assert_eq!(label(&[], &[]).unwrap(), None);
        assert!(
            label(&[], &["label=type:x_t"])
                .unwrap_err()
                .to_string()
                .contains("no SELinux")
        );
        assert_eq!(label(&[SELINUX], &["label=disable"]).unwrap(), None);
        let (process, file) = label(&[SELINUX], &[]).unwrap().unwrap();
        let level = process.strip_prefix("system_u:system_r:container_t:s0:").unwrap();
        assert_eq!(file, format!("system_u:object_r:container_file_t:s0:{level}"));
        let numbers: Vec<u16> = level.split(',').map(|c| c[1..].parse().unwrap()).collect();
        assert!(numbers[0] < numbers[1] && numbers[1] < CATEGORIES, "{level}");
        let contexts = (
            "etc/selinux/mls/contexts/lxc_contexts",
            "process = \"system_u:system_r:svirt_lxc_net_t:s0\"\nfile = \"system_u:object_r:svirt_sandbox_file_t:s0\"\n",
        );
        let config = ("etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=mls\n");
        let (process, file) = label(&[SELINUX, contexts, config], &[]).unwrap().unwrap();
        assert!(
            process.starts_with("system_u:system_r:svirt_lxc_net_t:s0:c"),
            "{process}"
        );
        assert!(
            file.starts_with("system_u:object_r:svirt_sandbox_file_t:s0:c"),
            "{file}"
        );
        let words = ["label=type:spc_t", "label=level:s0:c1,c2", "label=user:me"];
        let (process, file) = label(&[SELINUX], &words).unwrap().unwrap();
        assert_eq!(process, "me:system_r:spc_t:s0:c1,c2");
        assert_eq!(file, "me:object_r:container_file_t:s0:c1,c2");
    }

    #[test]
    fn categories_differ_from_container_to_container() {
        let some: std::collections::BTreeSet<String> = (0..20).map(|_| categories().unwrap()).collect();
        assert!(some.len() > 15);
    }
}
