//! Paths and names as a user gives them.

use std::path::{Component, Path, PathBuf};

use xebec_kernel::random;

/// Longest name of a volume. It is the name of a directory, which has up to 255 bytes.
const NAME_LIMIT: usize = 200;

/// Bytes of a random name, written in twice as many digits; docker's figure.
const RANDOM_BYTES: usize = 32;

/// Whether this can name a volume. Such a name is safe as the name of a directory.
pub(super) fn is_volume_name(name: &str) -> bool {
    name.len() <= NAME_LIMIT
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// A random name of a volume.
pub(super) fn random_name() -> std::io::Result<String> {
    random::random_name(RANDOM_BYTES)
}

/// An absolute path, without `.` and `..`, which are resolved by name as docker does, not by links.
fn cleaned(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::Normal(name) => cleaned.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    cleaned
}

/// A path of the host: absolute, or relative to `directory`.
pub(super) fn host_path(text: &str, directory: &Path) -> PathBuf {
    cleaned(&directory.join(text))
}

/// A path in the container.
pub(super) fn target(text: &str) -> Result<PathBuf, String> {
    if !text.starts_with('/') {
        return Err(format!(
            "the path in the container must be absolute, and {text:?} is not"
        ));
    }
    let path = cleaned(Path::new(text));
    match path == Path::new("/") {
        true => Err("the container's root cannot be replaced".to_owned()),
        false => Ok(path),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_names_of_directories() {
        for good in ["a", "data", "A.b_c-9", &"x".repeat(200)] {
            assert!(is_volume_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "-a",
            "_a",
            "a/b",
            "../x",
            "a b",
            "a\0",
            "é",
            "a:b",
            ".new-1",
            &"x".repeat(201),
        ] {
            assert!(!is_volume_name(bad), "{bad}");
        }
        let (one, two) = (random_name().unwrap(), random_name().unwrap());
        assert!(is_volume_name(&one) && one.len() == 64 && one != two);
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        let here = Path::new("/home/me");
        for (text, path) in [
            ("./x", "/home/me/x"),
            ("../x", "/home/x"),
            (".", "/home/me"),
            ("..", "/home"),
            ("../../../../x", "/x"),
            ("/a//b/./c/", "/a/b/c"),
            ("/", "/"),
        ] {
            assert_eq!(host_path(text, here), Path::new(path), "{text}");
        }
        assert_eq!(target("/a/../b/").unwrap(), Path::new("/b"));
        for text in ["", "a", "./a", "/", "/a/..", "//"] {
            assert!(target(text).is_err(), "{text}");
        }
    }
}
