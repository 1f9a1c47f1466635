//! Upper directories that mean no good: links, special files, names, depth, holes, files that change.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use xebec_commit::{CommitError, Compression, Layer, Note, Skipped, make_layer};

/// The paths of entries, with their contents.
type Entries = Vec<(String, Vec<u8>)>;

/// The layer of a directory, its entries, and what was left out.
fn made(upper: &Path) -> (Layer, Entries, Vec<Note>) {
    let (mut blob, mut notes) = (Vec::new(), Vec::new());
    let gzip = Compression::Gzip(1);
    let layer = make_layer(upper, gzip, &mut blob, &mut || Ok(()), &mut |note| {
        notes.push(note)
    })
    .unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&blob[..]));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        (
            String::from_utf8_lossy(&entry.path_bytes()).into_owned(),
            contents,
        )
    });
    (layer, entries.collect(), notes)
}

fn error(upper: &Path, go_on: &mut dyn FnMut() -> io::Result<()>) -> CommitError {
    make_layer(upper, Compression::Zstd(1), Vec::new(), go_on, &mut |_| ()).unwrap_err()
}

#[test]
fn links_are_not_followed_and_special_files_not_opened() {
    let top = tempfile::tempdir().unwrap();
    let upper = top.path().join("upper");
    fs::create_dir(&upper).unwrap();
    fs::write(top.path().join("secret"), "of the host").unwrap();
    symlink("../secret", upper.join("file")).unwrap();
    symlink("..", upper.join("directory")).unwrap();
    // To open it would wait for a writer for ever.
    mknodat(CWD, upper.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(upper.join("socket")).unwrap();
    fs::write(upper.join(".wh.passwd"), "").unwrap();
    fs::create_dir(upper.join(".wh..wh..opq")).unwrap();
    let (layer, entries, notes) = made(&upper);
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["./", "directory", "fifo", "file"]);
    assert!(entries.iter().all(|(_, contents)| contents.is_empty()));
    assert_eq!(layer.entries, 3);
    let left_out: Vec<(&str, Skipped)> = notes
        .iter()
        .map(|note| (note.path.to_str().unwrap(), note.reason))
        .collect();
    assert_eq!(
        left_out,
        [
            (".wh..wh..opq", Skipped::Name),
            (".wh.passwd", Skipped::Name),
            ("socket", Skipped::Socket)
        ]
    );
}

#[test]
fn mount_points_of_xebec_are_left_out_and_files_in_their_place_are_not() {
    let top = tempfile::tempdir().unwrap();
    for directory in ["dev", "proc", "sys", "etc", "sbin"] {
        fs::create_dir(top.path().join(directory)).unwrap();
    }
    for file in [
        "etc/hosts",
        "etc/hostname",
        "etc/resolv.conf",
        "sbin/docker-init",
        "sys/kept",
    ] {
        fs::write(
            top.path().join(file),
            if file == "etc/hosts" { "kept" } else { "" },
        )
        .unwrap();
    }
    let names: Vec<String> = made(top.path()).1.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["./", "etc/", "etc/hosts", "sbin/", "sys/", "sys/kept"]);
}

#[test]
fn a_file_that_changes_is_an_error_or_a_whole_entry() {
    let top = tempfile::tempdir().unwrap();
    let file = File::create(top.path().join("file")).unwrap();
    let size = 1 << 20;
    file.set_len(size).unwrap();
    file.write_all_at(b"x", size - 1).unwrap();
    // Asked for each file, and before each part of one.
    let mut asked = 0;
    let mut shrink = || {
        asked += 1;
        if asked == 4 { file.set_len(200_000) } else { Ok(()) }
    };
    let shrunk = error(top.path(), &mut shrink);
    assert!(
        matches!(&shrunk, CommitError::Shrunk(path) if path == Path::new("file")),
        "{shrunk}"
    );
    file.set_len(size).unwrap();
    let (mut blob, mut asked) = (Vec::new(), 0);
    let mut grow = || {
        asked += 1;
        file.write_all_at(b"more", size + asked)
    };
    let layer = make_layer(
        top.path(),
        Compression::Zstd(1),
        &mut blob,
        &mut grow,
        &mut |_| (),
    )
    .unwrap();
    // Headers of root and file, the contents as large as they were, and the end.
    assert_eq!(layer.plain_size % 512, 0);
    assert!(
        (size..size + 8192).contains(&layer.plain_size),
        "{}",
        layer.plain_size
    );
}

#[test]
fn trees_without_measure_are_refused() {
    let top = tempfile::tempdir().unwrap();
    let holes = top.path().join("holes");
    fs::create_dir(&holes).unwrap();
    File::create(holes.join("file"))
        .unwrap()
        .set_len(1 << 43)
        .unwrap();
    let refused = error(&holes, &mut || Ok(()));
    assert!(
        matches!(refused, CommitError::Sparse { claimed, .. } if claimed == 1 << 43),
        "{refused}"
    );
    let deep = top.path().join("deep");
    fs::create_dir(&deep).unwrap();
    let mut above = rustix::fs::open(&deep, rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..1001 {
        rustix::fs::mkdirat(&above, "d", Mode::RWXU).unwrap();
        above = rustix::fs::openat(&above, "d", rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    }
    assert!(matches!(error(&deep, &mut || Ok(())), CommitError::TooDeep(_)));
    // What removes temporary directories may call itself once for each level.
    xebec_kernel::remove::remove_tree(&deep).unwrap();
}

#[test]
fn a_caller_that_wants_no_more_and_a_full_disk_end_it() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("file"), vec![7; 8 << 20]).unwrap();
    let stopped = error(top.path(), &mut || Err(io::Error::other("told so")));
    assert!(stopped.to_string().contains("told so"), "{stopped}");
    for compression in [Compression::Gzip(1), Compression::Zstd(1)] {
        let full = make_layer(top.path(), compression, Full, &mut || Ok(()), &mut |_| ()).unwrap_err();
        let problem = full.of_disk().map(io::Error::kind);
        assert_eq!(problem, Some(io::ErrorKind::StorageFull), "{full}");
    }
}
