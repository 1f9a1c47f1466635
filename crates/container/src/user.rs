//! The user and group numbers of an image's `User`.
//!
//! Names are looked up in the image's own `/etc/passwd` and `/etc/group`. An image is not trusted: its files
//! are opened so that no symbolic link leads out of the view, only if they are regular files, and read up to
//! a limit. The rules are docker's: a number need not be listed. Without an explicit group the user's own
//! group counts, and every group that lists the user is added.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use xebec_kernel::path::{LastLink, open_in_root, open_in_root_at};

/// Largest user or group list that is read. Lists exported from directory services reach some 100,000 lines
/// of about 80 bytes.
const LIST_LIMIT: u64 = 16 << 20;

/// Largest user and group number; docker's limit. The kernel reserves -1 for "no change".
const ID_LIMIT: u32 = i32::MAX as u32;

/// Most additional groups of a remembered identity. The kernel's own limit (`NGROUPS_MAX`) is larger than any
/// use of it.
const GROUPS_LIMIT: usize = 1024;

/// The user that the container's first process runs as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Groups beyond `gid`.
    pub additional: Vec<u32>,
    /// The home directory; `/` if the image does not list the user.
    pub home: String,
}

impl Identity {
    /// Looks up `user` (`user[:group]`, empty for root) in the image that `view` shows.
    ///
    /// # Errors
    /// If the image does not list a name, or its lists cannot be read.
    pub fn of(view: &Path, user: &str) -> Result<Self, UserError> {
        resolve(view, user)
    }

    /// Reads an identity that was remembered as JSON. `None` unless it is a possible one. It is only a
    /// prediction: the container's user is looked up in the image in any case.
    pub fn remembered(text: &str) -> Option<Self> {
        let identity: Self = serde_json::from_str(text).ok()?;
        let Self {
            uid,
            gid,
            additional,
            home,
        } = &identity;
        let is_possible = additional
            .iter()
            .chain([uid, gid])
            .all(|&number| number <= ID_LIMIT)
            && additional.len() <= GROUPS_LIMIT
            && home.starts_with('/')
            && !home.contains('\0');
        is_possible.then_some(identity)
    }
}

/// Why a user of an image could not be found.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The user is not listed.
    #[error("the image has no user {0:?} in its /etc/passwd; choose another user (-u), or use its number")]
    NoUser(String),
    /// The group is not listed.
    #[error(
        "the image has no group {0:?} in its /etc/group; choose another group (-u USER:GROUP), or use its number"
    )]
    NoGroup(String),
    /// A number that is larger than the kernel takes.
    #[error("user or group number {0} is too large; the largest is {ID_LIMIT}")]
    TooLarge(String),
    /// The list cannot be read.
    #[error("cannot read the image's {}: {source}", path.display())]
    List {
        /// The list's path in the image.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The list is not a file that could be one.
    #[error("the image's {} is not a regular file of at most 16 MiB; use numbers for the user and group", .0.display())]
    NotAList(PathBuf),
}

/// Looks up `user` (`user[:group]`, empty for root) in the image that `view` shows.
pub(crate) fn resolve(view: &Path, user: &str) -> Result<Identity, UserError> {
    resolve_by(|path| open_in_root(view, path), user)
}

/// The same below a root directory that is open.
pub(crate) fn resolve_at(root: &OwnedFd, user: &str) -> Result<Identity, UserError> {
    let open = |path: &Path| open_in_root_at(root.as_fd(), path, LastLink::Follow);
    resolve_by(open, user)
}

/// The names of the users that are listed below a root directory that is open, by their numbers. None if the
/// list cannot be read.
pub(crate) fn names_at(root: &OwnedFd) -> Vec<(u32, String)> {
    let open = |path: &Path| open_in_root_at(root.as_fd(), path, LastLink::Follow);
    let list = read_list(open, "etc/passwd").unwrap_or_default();
    let entries = list.lines().filter_map(passwd_entry);
    entries
        .filter_map(|entry| Some((entry.uid, entry.name?)))
        .collect()
}

fn resolve_by(open: impl Fn(&Path) -> io::Result<OwnedFd>, user: &str) -> Result<Identity, UserError> {
    let (user, group) = match user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (user, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let listed = find_user(&read_list(&open, "etc/passwd")?, user)?;
    let groups = read_list(&open, "etc/group")?;
    let (gid, additional) = match group {
        Some(group) => (find_group(&groups, group)?, Vec::new()),
        None => (listed.gid, groups_of(&groups, &listed)),
    };
    Ok(Identity {
        uid: listed.uid,
        gid,
        additional,
        home: listed.home,
    })
}

/// Adds groups of an image, by name or number.
pub(crate) fn add_groups(view: &Path, groups: &[String], identity: &mut Identity) -> Result<(), UserError> {
    if groups.is_empty() {
        return Ok(());
    }
    let list = read_list(|path: &Path| open_in_root(view, path), "etc/group")?;
    for group in groups {
        let gid = find_group(&list, group)?;
        if gid != identity.gid && !identity.additional.contains(&gid) {
            identity.additional.push(gid);
        }
    }
    Ok(())
}

struct Listed {
    name: Option<String>,
    uid: u32,
    gid: u32,
    home: String,
}

/// A user named like a number wins over the user with that number, as in docker.
fn find_user(list: &str, wanted: &str) -> Result<Listed, UserError> {
    let number = number(wanted)?;
    let entries = || list.lines().filter_map(passwd_entry);
    let by_name = entries().find(|entry| entry.name.as_deref() == Some(wanted));
    let by_number = || entries().find(|entry| Some(entry.uid) == number);
    match (by_name.or_else(by_number), number) {
        (Some(entry), _) => Ok(entry),
        (None, Some(uid)) => Ok(Listed {
            name: None,
            uid,
            gid: 0,
            home: "/".into(),
        }),
        (None, None) => Err(UserError::NoUser(wanted.to_owned())),
    }
}

/// `name:password:uid:gid:comment:home:shell` (`passwd(5)`). Other lines are ignored.
fn passwd_entry(line: &str) -> Option<Listed> {
    let mut fields = line.trim().split(':');
    let name = fields
        .next()
        .filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let uid = fields.nth(1)?.parse().ok().filter(|&uid| uid <= ID_LIMIT)?;
    let gid = fields.next()?.parse().ok().filter(|&gid| gid <= ID_LIMIT)?;
    let home = fields.nth(1).filter(|home| home.starts_with('/')).unwrap_or("/");
    Some(Listed {
        name: Some(name.to_owned()),
        uid,
        gid,
        home: home.to_owned(),
    })
}

/// `name:password:gid:member,member` (`group(5)`). Other lines are ignored.
fn group_entry(line: &str) -> Option<(&str, u32, &str)> {
    let mut fields = line.trim().split(':');
    let name = fields
        .next()
        .filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let gid = fields.nth(1)?.parse().ok().filter(|&gid| gid <= ID_LIMIT)?;
    Some((name, gid, fields.next().unwrap_or("")))
}

fn find_group(list: &str, wanted: &str) -> Result<u32, UserError> {
    let listed = list
        .lines()
        .filter_map(group_entry)
        .find(|(name, ..)| *name == wanted);
    match (listed, number(wanted)?) {
        (Some((_, gid, _)), _) | (None, Some(gid)) => Ok(gid),
        (None, None) => Err(UserError::NoGroup(wanted.to_owned())),
    }
}

fn groups_of(list: &str, user: &Listed) -> Vec<u32> {
    let Some(name) = &user.name else { return Vec::new() };
    let mut groups: Vec<u32> = list
        .lines()
        .filter_map(group_entry)
        .filter(|(_, gid, members)| {
            *gid != user.gid && members.split(',').any(|member| member.trim() == name)
        })
        .map(|(_, gid, _)| gid)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The number that `text` is, if it is one. A number that is too large is an error.
fn number(text: &str) -> Result<Option<u32>, UserError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    match text.parse() {
        Ok(number) if number <= ID_LIMIT => Ok(Some(number)),
        _ => Err(UserError::TooLarge(text.to_owned())),
    }
}

/// The list's text, empty if the image has no such list. Bytes that are not UTF-8 spoil only their own entry.
fn read_list(open_list: impl Fn(&Path) -> io::Result<OwnedFd>, path: &str) -> Result<String, UserError> {
    let failed = |source: io::Error| UserError::List {
        path: Path::new("/").join(path),
        source,
    };
    let file = match open_list(Path::new(path)) {
        Ok(file) => file,
        Err(error) => match Errno::from_io_error(&error) {
            // ENOTDIR and ELOOP: to a libc in the container there is no list, either.
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(String::new()),
            _ => return Err(failed(error)),
        },
    };
    let stat = fstat(&file).map_err(|error| failed(error.into()))?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !regular || u64::try_from(stat.st_size).map_or(true, |size| size > LIST_LIMIT) {
        return Err(UserError::NotAList(Path::new("/").join(path)));
    }
    // The descriptor gives no access to the contents, so that a device or a FIFO is never opened.
    let again = open(
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let mut bytes = Vec::new();
    let list = File::from(again.map_err(|error| failed(error.into()))?);
    list.take(LIST_LIMIT).read_to_end(&mut bytes).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
