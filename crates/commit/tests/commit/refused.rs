//! What the changes of a container cannot have, since no layer, or no other reader of layers, takes it.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, XattrFlags, mkdirat, mknodat, openat};
use xebec_commit::{CommitError, Compression, Note, Skipped, make_layer};

/// The paths of a layer's entries, and what was left out.
fn made(
    upper: &Path,
    go_on: &mut dyn FnMut() -> io::Result<()>,
) -> Result<(Vec<String>, Vec<Note>), CommitError> {
    let (mut blob, mut notes) = (Vec::new(), Vec::new());
    make_layer(upper, Compression::Gzip(1), &mut blob, go_on, &mut |note| {
        notes.push(note)
    })?;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&blob[..]));
    let entries = archive.entries().unwrap();
    let names = entries.map(|entry| String::from_utf8_lossy(&entry.unwrap().path_bytes()).into_owned());
    Ok((names.collect(), notes))
}

/// A device by which overlayfs notes a deletion. To make it takes no privilege.
fn delete(path: &Path) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
}

#[test]
fn paths_and_names_that_no_layer_can_have() {
    let top = tempfile::tempdir().unwrap();
    let (fits, long, deep) = (top.path().join("1"), top.path().join("2"), top.path().join("3"));
    for directory in [&fits, &long, &deep] {
        fs::create_dir(directory).unwrap();
    }
    let most = "n".repeat(251);
    delete(&fits.join(&most));
    fs::write(fits.join("x".repeat(255)), "").unwrap();
    let (names, _) = made(&fits, &mut || Ok(())).unwrap();
    assert_eq!(names, ["./".to_owned(), format!(".wh.{most}"), "x".repeat(255)]);
    delete(&long.join("n".repeat(252)));
    let refused = made(&long, &mut || Ok(())).unwrap_err();
    assert!(matches!(refused, CommitError::DeletedName(_)), "{refused}");
    let mut above = rustix::fs::open(&deep, OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..17 {
        let name = "d".repeat(250);
        mkdirat(&above, &*name, Mode::RWXU).unwrap();
        above = openat(&above, &*name, OFlags::PATH, Mode::empty()).unwrap();
    }
    let refused = made(&deep, &mut || Ok(())).unwrap_err();
    assert!(matches!(refused, CommitError::PathTooLong(_)), "{refused}");
    xebec_kernel::remove::remove_tree(&deep).unwrap();
}

#[test]
fn holes_of_several_files_count_together() {
    let top = tempfile::tempdir().unwrap();
    for (name, size) in [("a", 1 << 20), ("b", (1 << 30) - 1)] {
        let file = fs::File::create(top.path().join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    let refused = made(top.path(), &mut || Ok(())).unwrap_err();
    assert!(
        matches!(&refused, CommitError::Sparse { path, .. } if path == Path::new("b")),
        "{refused}"
    );
}

#[test]
fn a_file_that_is_deleted_meanwhile_is_deleted_and_no_device() {
    let top = tempfile::tempdir().unwrap();
    let directory = top.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let file = directory.join("file");
    fs::write(&file, "").unwrap();
    // Asked of names of the top (1 to 3), and of names of the directory (4 and 5), before the file is opened.
    let mut asked = 0;
    let mut delete_now = || {
        asked += 1;
        if asked == 6 {
            fs::remove_file(&file)?;
            delete(&file);
        }
        Ok(())
    };
    let (names, _) = made(top.path(), &mut delete_now).unwrap();
    assert_eq!(names, ["./", "directory/", "directory/.wh.file"]);
}

#[test]
fn a_caller_is_asked_for_each_name_of_a_directory() {
    let top = tempfile::tempdir().unwrap();
    for number in 0..100 {
        delete(&top.path().join(number.to_string()));
    }
    let mut asked = 0;
    let mut go_on = || {
        asked += 1;
        if asked > 250 {
            Err(io::Error::other("told so"))
        } else {
            Ok(())
        }
    };
    // For each one: when it is read, looked at, and written.
    let stopped = made(top.path(), &mut go_on).unwrap_err();
    assert!(matches!(stopped, CommitError::Stopped(_)), "{stopped}");
}

#[test]
fn attributes_that_steer_overlays_are_left_out_and_messages_steer_no_terminal() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("file\x1b[2J");
    fs::write(&path, "").unwrap();
    for name in ["user.overlay.opaque", "user.a=b", "user.kept"] {
        match rustix::fs::setxattr(&path, name, b"y", XattrFlags::empty()) {
            Err(rustix::io::Errno::NOTSUP) => {
                return println!("SKIPPED: temporary files have no attributes here");
            }
            set => set.unwrap(),
        }
    }
    let (names, notes) = made(top.path(), &mut || Ok(())).unwrap();
    assert_eq!(names.len(), 2);
    let reasons: Vec<Skipped> = notes.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, [Skipped::Attributes]);
    let said = notes[0].to_string();
    assert!(
        said.contains("attributes of /file [2J") && !said.contains('\x1b'),
        "{said:?}"
    );
    let error = CommitError::Shrunk(path).to_string();
    assert!(!error.contains('\x1b'), "{error:?}");
}
