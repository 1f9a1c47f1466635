//! Paths of a host whose root directory is another one's directory: symbolic links lead where they lead on that host.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Links that are followed before a path is taken to lead in circles, as the kernel has it.
const LINKS: usize = 40;

/// Where `path` of a host is, seen from here, with every link resolved as that host would. A part that is not there stays as it is
/// written.
pub(crate) fn resolve(sysroot: &Path, path: &Path) -> PathBuf {
    let mut left = parts(path);
    let mut found = Vec::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part == ".." {
            found.pop();
            continue;
        }
        found.push(part);
        let here = sysroot.join(found.iter().collect::<PathBuf>());
        let Ok(target) = std::fs::read_link(&here) else {
            continue;
        };
        links += 1;
        if links > LINKS {
            continue;
        }
        found.pop();
        if target.is_absolute() {
            found.clear();
        }
        left.extend(parts(&target));
    }
    sysroot.join(found.iter().collect::<PathBuf>())
}

/// The parts of a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_where_they_lead_on_that_host() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path();
        std::fs::create_dir_all(root.join("data/real")).unwrap();
        std::fs::create_dir_all(root.join("etc")).unwrap();
        symlink("/data/real", root.join("etc/absolute")).unwrap();
        symlink("../data", root.join("etc/relative")).unwrap();
        symlink("../../../../../data", root.join("etc/out")).unwrap();
        symlink("circle", root.join("etc/circle")).unwrap();
        symlink("/etc/absolute/file", root.join("etc/to-nothing")).unwrap();
        for (path, expected) in [
            ("/etc/absolute/x", "data/real/x"),
            ("/etc/relative/real/x", "data/real/x"),
            ("/etc/out/x", "data/x"),
            ("/etc/to-nothing", "data/real/file"),
            ("/../../etc/./missing/../x", "etc/x"),
            ("/", ""),
        ] {
            assert_eq!(resolve(root, Path::new(path)), root.join(expected), "{path}");
        }
        assert!(resolve(root, Path::new("/etc/circle/x")).starts_with(root));
    }
}
