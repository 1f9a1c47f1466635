//! The table of mounts, `/proc/self/mountinfo` (`Documentation/filesystems/proc.rst`, section 3.5).

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::MountError;

/// Longest table that is read: 100,000 mounts (the kernel's default limit for a namespace) of 640 bytes.
pub const MAX_MOUNTINFO_BYTES: u64 = 64 << 20;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// Number of the mount.
    pub id: u64,
    /// Number of the mount that it is attached to.
    pub parent: u64,
    /// Major number of the device that files of it report.
    pub major: u32,
    /// Minor number of that device; a file system without a block device has major 0.
    pub minor: u32,
    /// Which directory of the file system is mounted.
    pub root: PathBuf,
    /// The directory on which it is mounted.
    pub target: PathBuf,
    /// Options of the mount, comma-separated.
    pub options: String,
    /// Propagation: `shared:N`, `master:N`, `propagate_from:N`, `unbindable`; empty for a private mount.
    pub propagation: Vec<String>,
    /// `erofs`, `overlay`, `ext4`.
    pub filesystem: String,
    /// The source, as the file system shows it.
    pub source: PathBuf,
    /// Options of the file system, comma-separated.
    pub super_options: String,
}

impl MountInfo {
    /// True when neither this mount is seen elsewhere nor other mounts appear below it by propagation.
    pub fn is_private(&self) -> bool {
        self.propagation.is_empty()
    }
}

/// Parses the whole table; lines that do not have the documented form are an error.
///
/// # Errors
/// [`MountError::Table`] with the number of the line.
pub fn parse_mountinfo(text: &[u8]) -> Result<Vec<MountInfo>, MountError> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .enumerate()
        .map(|(number, line)| {
            parse_line(line).ok_or_else(|| MountError::Table {
                problem: format!("line {} is malformed", number + 1),
            })
        })
        .collect()
}

/// The mounts of this process's namespace, parents before children.
///
/// # Errors
/// [`MountError::Table`].
pub fn mounts() -> Result<Vec<MountInfo>, MountError> {
    let error = |source: std::io::Error| MountError::Table {
        problem: source.to_string(),
    };
    let file = std::fs::File::open("/proc/self/mountinfo").map_err(error)?;
    let mut text = Vec::new();
    file.take(MAX_MOUNTINFO_BYTES)
        .read_to_end(&mut text)
        .map_err(error)?;
    parse_mountinfo(&text)
}

/// True when something is mounted exactly at `target`.
///
/// # Errors
/// [`MountError::Table`].
pub fn is_mounted(target: &Path) -> Result<bool, MountError> {
    // The table has real paths; the target may have been given through a symlink.
    let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
    Ok(mounts()?.iter().any(|mount| mount.target == target))
}

/// Fails if something is mounted at `directory` or below it, as the table has their paths. A caller that removes the directory
/// would take an administrator's mount there for its contents, or leave the mount and remove the files beside it.
///
/// # Errors
/// An error that names the mount and says to unmount it; [`MountError::Table`].
pub fn refuse_mounts_below(directory: &Path) -> std::io::Result<()> {
    let table = mounts().map_err(std::io::Error::other)?;
    match table.iter().find(|mount| mount.target.starts_with(directory)) {
        Some(mount) => Err(std::io::Error::other(format!(
            "{} is mounted at {}; unmount it first",
            mount.filesystem,
            mount.target.display()
        ))),
        None => Ok(()),
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = path(fields.next()?);
    let target = path(fields.next()?);
    let options = text(fields.next()?);
    let propagation = fields
        .by_ref()
        .take_while(|field| *field != b"-")
        .map(text)
        .collect();
    Some(MountInfo {
        id,
        parent,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root,
        target,
        options,
        propagation,
        filesystem: text(fields.next()?),
        source: path(fields.next()?),
        super_options: text(fields.next().unwrap_or_default()),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits (`mangle_path`).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, tail)) = rest.split_first() {
        match tail.first_chunk() {
            Some([a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7']) if *byte == b'\\' => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => {
                plain.push(*byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    /// `mangle_path` of the kernel.
    fn escape(path: &[u8]) -> Vec<u8> {
        path.iter()
            .flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
                byte => vec![*byte],
            })
            .collect()
    }

    #[test]
    fn the_documented_example() {
        let line =
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n";
        let [mount] = &parse_mountinfo(line).unwrap()[..] else {
            panic!("not one mount")
        };
        assert_eq!(
            (mount.id, mount.parent, mount.major, mount.minor),
            (36, 35, 98, 0)
        );
        assert_eq!(
            (mount.root.to_str(), mount.target.to_str()),
            (Some("/mnt1"), Some("/mnt2"))
        );
        assert_eq!(mount.propagation, ["master:1", "shared:7"]);
        assert_eq!(
            (mount.filesystem.as_str(), mount.source.to_str()),
            ("ext3", Some("/dev/root"))
        );
        assert_eq!(mount.super_options, "rw,errors=continue");
        assert!(!mount.is_private());
    }

    proptest! {
        #[test]
        fn paths_of_any_bytes_survive(path in prop::collection::vec(1u8.., 1..300)) {
            let mut line = b"1 2 0:3 / ".to_vec();
            line.extend(escape(&path));
            line.extend(b" ro - erofs none ro");
            let mounts = parse_mountinfo(&line).unwrap();
            prop_assert_eq!(mounts[0].target.as_os_str().as_bytes(), &path[..]);
        }

        #[test]
        fn any_bytes_are_a_table_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse_mountinfo(&bytes);
        }
    }

    #[test]
    fn agrees_with_findmnt() {
        let columns = ["-rno", "ID,PARENT,MAJ:MIN,FSTYPE"];
        let output = match std::process::Command::new("findmnt").args(columns).output() {
            Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
            _ => return println!("SKIPPED: findmnt of util-linux is not here"),
        };
        let ours: std::collections::BTreeSet<String> = mounts()
            .unwrap()
            .iter()
            .map(|mount| {
                let MountInfo {
                    id,
                    parent,
                    major,
                    minor,
                    filesystem,
                    ..
                } = mount;
                format!("{id} {parent} {major}:{minor} {filesystem}")
            })
            .collect();
        let theirs: std::collections::BTreeSet<String> = output.lines().map(str::to_owned).collect();
        assert!(!theirs.is_empty());
        // findmnt leaves out mounts that another mount hides; it must know none that we do not.
        assert!(theirs.is_subset(&ours), "{theirs:#?} {ours:#?}");
    }
}
