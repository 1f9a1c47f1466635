//! Paths below a directory that is not trusted.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// How often a lookup is repeated if the kernel saw a rename in the directory meanwhile (`openat2(2)`,
/// `EAGAIN`).
const ATTEMPTS: usize = 16;

/// Opens `path` as a process would whose root directory is `root`: absolute links and `..` do not lead out of
/// it, and links of `/proc` to open files are refused.
///
/// The descriptor (`O_PATH`) identifies the file and gives no access to its contents, so nothing happens to a
/// device or a FIFO.
///
/// # Errors
/// As for `open(2)`: `NotFound` if there is no such file, and what else the kernel says.
pub fn open_in_root(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty())?;
    // `IN_ROOT` refuses links of /proc today, and may not later (openat2(2)).
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        outcome = openat2(&root, path, flags, Mode::empty(), resolve);
        if outcome.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
    }
    Ok(outcome?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn links_do_not_lead_out_of_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("below")).unwrap();
        fs::write(directory.path().join("file"), "outside").unwrap();
        fs::write(root.join("file"), "inside").unwrap();
        symlink("/file", root.join("absolute")).unwrap();
        symlink("../../file", root.join("below/relative")).unwrap();
        let inside = fs::metadata(root.join("file")).unwrap().ino();
        for path in [
            "file",
            "/file",
            "../file",
            "absolute",
            "below/relative",
            "below/../../../file",
        ] {
            let opened = open_in_root(&root, Path::new(path)).unwrap();
            assert_eq!(rustix::fs::fstat(&opened).unwrap().st_ino, inside, "{path}");
        }
        let missing = open_in_root(&root, Path::new("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(open_in_root(&root.join("file"), Path::new("x")).is_err());
        let magic = open_in_root(Path::new("/"), Path::new("proc/self/root/proc"));
        assert!(magic.is_err(), "a link of /proc leads anywhere");
    }
}
