//! Paths inside an image: bytes, relative to the image's root, already validated.

use std::fmt;

/// Longest name of one path component, in bytes (`NAME_MAX` of Linux).
pub const MAX_NAME: usize = 255;
/// Longest path that is accepted, in bytes. Linux limits what one system call takes to 4,096, but deeper trees
/// can be built and walked step by step, so the limit here is only against abuse.
pub const MAX_PATH: usize = 64 * 1024;

/// A path inside an image: components joined by `/`, without a leading or trailing one; the root is empty.
///
/// No component is empty, `.`, `..`, longer than [`MAX_NAME`] or contains NUL. Bytes, not text: names in tar
/// files need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LayerPath(Vec<u8>);

/// Why bytes are not a usable path.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathError {
    /// A component is `..`, which could leave the image.
    #[error("path {0:?} contains \"..\"")]
    Parent(String),
    /// A component is longer than [`MAX_NAME`].
    #[error("path {0:?} has a name of more than 255 bytes")]
    NameTooLong(String),
    /// The path is longer than [`MAX_PATH`].
    #[error("path of {0} bytes is longer than 65536")]
    PathTooLong(usize),
    /// The path has a leading, trailing or repeated `/` or a `.` where the normal form is required.
    #[error("path {0:?} has an empty name or \".\" in it")]
    NotNormal(String),
    /// The path contains a NUL byte.
    #[error("path {0:?} contains a NUL byte")]
    Nul(String),
}

impl LayerPath {
    /// The image's root.
    pub fn root() -> Self {
        Self::default()
    }

    /// Normalizes a name as found in a tar header: leading `/`, repeated `/`, `.` components and trailing `/`
    /// are dropped.
    ///
    /// # Errors
    /// `..`, NUL bytes and names or paths that are too long are rejected.
    pub fn normalize(raw: &[u8]) -> Result<Self, PathError> {
        let shown = || String::from_utf8_lossy(&raw[..raw.len().min(512)]).into_owned();
        if raw.len() > MAX_PATH {
            return Err(PathError::PathTooLong(raw.len()));
        }
        if raw.contains(&0) {
            return Err(PathError::Nul(shown()));
        }
        let mut path = Vec::with_capacity(raw.len());
        for name in raw.split(|&b| b == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => return Err(PathError::Parent(shown())),
                _ if name.len() > MAX_NAME => return Err(PathError::NameTooLong(shown())),
                _ => {}
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Ok(Self(path))
    }

    /// A path from bytes that must already be in the form of this type, for decoders.
    ///
    /// # Errors
    /// Anything [`LayerPath::normalize`] rejects or would change.
    pub fn from_normal_form(path: Vec<u8>) -> Result<Self, PathError> {
        if path.is_empty() {
            return Ok(Self(path));
        }
        let shown = |path: &[u8]| String::from_utf8_lossy(&path[..path.len().min(512)]).into_owned();
        if path.len() > MAX_PATH {
            return Err(PathError::PathTooLong(path.len()));
        }
        if path.contains(&0) {
            return Err(PathError::Nul(shown(&path)));
        }
        for name in path.split(|&b| b == b'/') {
            match name {
                b"" | b"." => return Err(PathError::NotNormal(shown(&path))),
                b".." => return Err(PathError::Parent(shown(&path))),
                _ if name.len() > MAX_NAME => return Err(PathError::NameTooLong(shown(&path))),
                _ => {}
            }
        }
        Ok(Self(path))
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the image's root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The names on the way from the root.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// The path without its last name, and that name; `None` for the root.
    pub fn split_last(&self) -> Option<(LayerPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }
}

impl fmt::Display for LayerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for LayerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes() {
        for (raw, want) in [
            ("./usr//bin/", "usr/bin"),
            ("/etc/passwd", "etc/passwd"),
            ("./", ""),
            ("a/./b", "a/b"),
        ] {
            assert_eq!(
                LayerPath::normalize(raw.as_bytes()).unwrap().as_bytes(),
                want.as_bytes()
            );
        }
    }

    #[test]
    fn normal_form_is_what_normalize_returns() {
        for raw in ["./usr//bin/", "/etc/passwd", "./", "a/./b", "", "/"] {
            let path = LayerPath::normalize(raw.as_bytes()).unwrap();
            assert_eq!(
                LayerPath::from_normal_form(path.as_bytes().to_vec()),
                Ok(path.clone())
            );
            if raw.as_bytes() != path.as_bytes() {
                assert!(LayerPath::from_normal_form(raw.as_bytes().to_vec()).is_err());
            }
        }
        assert!(matches!(
            LayerPath::from_normal_form(b"a/../b".to_vec()),
            Err(PathError::Parent(_))
        ));
    }

    #[test]
    fn rejects_escapes() {
        assert!(matches!(
            LayerPath::normalize(b"a/../b"),
            Err(PathError::Parent(_))
        ));
        assert!(matches!(LayerPath::normalize(b"a\0b"), Err(PathError::Nul(_))));
        assert!(matches!(
            LayerPath::normalize(&[b'a'; 256]),
            Err(PathError::NameTooLong(_))
        ));
        assert!(LayerPath::normalize(&[b'a'; 255]).is_ok());
    }
}
