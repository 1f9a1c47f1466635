//! Archives written by other programs, read by this parser and by Go's `archive/tar`, which containerd and umoci
//! unpack layers with: the two must agree on every entry, and on which archives are no archives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xebec_format::digest::Digest;
use xebec_format::layer::{Entry, EntryKind};
use xebec_format::path::LayerPath;
use xebec_index::tar::{EntryProblem, TarError};

use crate::tar_support::{Block, Collected, gnu_long, go_tool, make_tree, parse_cut, pax};

/// One line of `gotools/tarlist`.
#[derive(Debug)]
struct GoEntry {
    kind: u8,
    name: Vec<u8>,
    link: Vec<u8>,
    numbers: Vec<i64>,
    digest: String,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

type GoArchive = (Vec<GoEntry>, Result<(), String>);

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The entries that Go's reader finds in `archives`.
fn go_lists(archives: &[PathBuf]) -> Option<Vec<GoArchive>> {
    let text = go_tool("tarlist", archives)?;
    let (mut lists, mut entries) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["ok"] => lists.push((std::mem::take(&mut entries), Ok(()))),
            ["error", message] => lists.push((std::mem::take(&mut entries), Err((*message).to_owned()))),
            [kind, name, link, numbers @ .., digest, xattrs] => entries.push(GoEntry {
                kind: kind.as_bytes()[0],
                name: unhex(name),
                link: unhex(link),
                numbers: numbers.iter().map(|number| number.parse().unwrap()).collect(),
                digest: (*digest).to_owned(),
                xattrs: xattrs
                    .split(',')
                    .filter_map(|xattr| xattr.split_once('='))
                    .map(|(name, value)| (unhex(name), unhex(value)))
                    .collect(),
            }),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lists.len(), archives.len());
    Some(lists)
}

/// Compares an archive's entries with Go's; whiteouts and the root are not in these archives.
fn compare(archive: &Path, parsed: &Collected, go: &[GoEntry]) {
    // A root that is no directory is nothing, as for containerd.
    let is_root = |entry: &GoEntry| LayerPath::normalize(&entry.name).is_ok_and(|path| path.is_root());
    let is_entry = |entry: &&GoEntry| entry.kind != b'g' && (entry.kind == b'5' || !is_root(entry));
    let go: Vec<&GoEntry> = go.iter().filter(is_entry).collect();
    let shown = archive.display();
    assert_eq!(parsed.entries.len(), go.len(), "{shown}: number of entries");
    for (entry, go) in parsed.entries.iter().zip(go) {
        compare_entry(parsed, entry, go).unwrap_or_else(|what| panic!("{shown}: {what}: {entry:?} {go:?}"));
    }
}

fn compare_entry(parsed: &Collected, entry: &Entry, go: &GoEntry) -> Result<(), &'static str> {
    let [mode, uid, gid, seconds, nanoseconds, size, major, minor] = go.numbers[..] else {
        return Err("numbers");
    };
    let metadata = &entry.metadata;
    let same = |same: bool, what| if same { Ok(()) } else { Err(what) };
    same(LayerPath::normalize(&go.name).unwrap() == entry.path, "path")?;
    same(i64::from(metadata.mode) == mode & 0o7777, "mode")?;
    same((metadata.uid, metadata.gid) == (uid as u32, gid as u32), "owner")?;
    same(
        (metadata.mtime, i64::from(metadata.mtime_nanoseconds)) == (seconds, nanoseconds),
        "mtime",
    )?;
    let xattrs = metadata.xattrs.iter().map(|xattr| (&xattr.name, &xattr.value));
    // The test archives have no other namespaces that could be set.
    let mut go_xattrs = go.xattrs.clone();
    go_xattrs.sort();
    let go_xattrs = go_xattrs
        .iter()
        .filter(|(name, _)| name.starts_with(b"user.") || name.starts_with(b"security."));
    same(xattrs.eq(go_xattrs.map(|(name, value)| (name, value))), "xattrs")?;
    match (&entry.kind, go.kind) {
        (EntryKind::Directory, b'5') | (EntryKind::Fifo, b'6') => Ok(()),
        (EntryKind::File { size: own, .. }, b'0' | b'7' | b'S') => {
            same(*own == size as u64, "size")?;
            let digest = || Digest::of(&parsed.contents(entry)).hex();
            same(go.digest == "-" || go.digest == digest(), "contents")
        }
        (EntryKind::Symlink { target }, b'2') => same(*target == go.link, "symlink target"),
        (EntryKind::Hardlink { target }, b'1') => same(
            *target == LayerPath::normalize(&go.link).unwrap(),
            "hard link target",
        ),
        (EntryKind::CharDevice { major: a, minor: b }, b'3')
        | (EntryKind::BlockDevice { major: a, minor: b }, b'4') => {
            same((i64::from(*a), i64::from(*b)) == (major, minor), "device")
        }
        _ => Err("type"),
    }
}

fn gnu_tar_archives(directory: &Path) -> Vec<PathBuf> {
    let tree = directory.join("tree");
    fs::create_dir(&tree).unwrap();
    make_tree(&tree);
    let sparse = |version| ["--format=pax", "--sparse", "--hole-detection=seek", version];
    let variants: [(&str, &[&str]); 10] = [
        ("gnu", &["--format=gnu"]),
        ("oldgnu", &["--format=oldgnu"]),
        (
            "gnu-sparse",
            &["--format=gnu", "--sparse", "--hole-detection=seek"],
        ),
        (
            "gnu-raw-sparse",
            &["--format=gnu", "--sparse", "--hole-detection=raw"],
        ),
        ("pax", &["--format=pax", "--xattrs", "--xattrs-include=*"]),
        ("pax-sparse-0.0", &sparse("--sparse-version=0.0")),
        ("pax-sparse-0.1", &sparse("--sparse-version=0.1")),
        ("pax-sparse-1.0", &sparse("--sparse-version=1.0")),
        ("ustar", &["--format=ustar", "--ignore-failed-read"]),
        ("v7", &["--format=v7", "--ignore-failed-read"]),
    ];
    let mut archives = Vec::new();
    for (name, options) in variants {
        let archive = directory.join(format!("{name}.tar"));
        let output = Command::new("tar")
            .arg("-C")
            .arg(&tree)
            .args(options)
            .arg("-cf")
            .arg(&archive)
            .arg("usr")
            .output();
        match output {
            // 2: names or owners that ustar and v7 cannot hold were left out.
            Ok(output) if output.status.success() || archive.exists() && matches!(name, "ustar" | "v7") => {
                archives.push(archive);
            }
            other => eprintln!("SKIPPED: GNU tar, {name}: {other:?}"),
        }
    }
    archives
}

fn python_archives(directory: &Path) -> Vec<PathBuf> {
    let script = r#"
import io, sys, tarfile
for name, kind in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
    with tarfile.open(f"{sys.argv[1]}/python-{name}.tar", "w", format=kind) as archive:
        def add(path, contents=b"", **fields):
            info = tarfile.TarInfo(path)
            info.size = len(contents)
            for key, value in fields.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(contents))
        add("d", type=tarfile.DIRTYPE, mode=0o2755)
        add("d/file", b"x" * 5000, uid=1000, gid=1001, mtime=1700000000)
        add("d/continuous", b"y" * 10, type=tarfile.CONTTYPE)
        add("d/old", b"z" * 10, type=tarfile.AREGTYPE)
        add("d/oldslash/", type=tarfile.AREGTYPE)
        add("d/hard", type=tarfile.LNKTYPE, linkname="d/file")
        add("d/sym", type=tarfile.SYMTYPE, linkname="/abs/../target")
        add("d/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)
        if kind != tarfile.USTAR_FORMAT:
            add("d/" + "long/" * 60 + "name", b"long")
            add("d/long-link", type=tarfile.SYMTYPE, linkname="t" * 500)
            add("d/large-owner", uid=4000000000, gid=2**31)
        if kind == tarfile.GNU_FORMAT:
            add("d/before-1970", mtime=-1000000000)
        if kind == tarfile.PAX_FORMAT:
            add("d/subsecond", mtime=-1.25)
            add("d/\udcff\udcfe", b"bytes")
            add("d/attributes", pax_headers={"SCHILY.xattr.user.a": "1", "SCHILY.xattr.user.empty": ""})
"#;
    let output = Command::new("python3")
        .arg("-c")
        .arg(script)
        .arg(directory)
        .output();
    match output {
        Ok(output) if output.status.success() => ["ustar", "gnu", "pax"]
            .iter()
            .map(|name| directory.join(format!("python-{name}.tar")))
            .collect(),
        other => {
            eprintln!("SKIPPED: python3's tarfile: {other:?}");
            Vec::new()
        }
    }
}

#[test]
fn archives_of_other_programs_are_read_as_go_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut archives = gnu_tar_archives(directory.path());
    archives.extend(python_archives(directory.path()));
    let parsed: Vec<Collected> = archives
        .iter()
        .map(|archive| {
            let bytes = fs::read(archive).unwrap();
            let parsed = parse_cut(&bytes, &[1, 511, 100_000, 13]);
            let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
            parsed.check_extents();
            parsed
        })
        .collect();
    // Sparse or not, GNU tar's archives hold the same files.
    let tree = directory.path().join("tree");
    for (archive, parsed) in archives.iter().zip(&parsed) {
        for entry in &parsed.entries {
            let path = tree.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
                entry.path.as_bytes(),
            ));
            if matches!(entry.kind, EntryKind::File { .. }) && entry.path.as_bytes().starts_with(b"usr") {
                let same = parsed.contents(entry) == fs::read(&path).unwrap();
                assert!(same, "{}: contents of {}", archive.display(), entry.path);
            }
        }
    }
    let Some(lists) = go_lists(&archives) else { return };
    let mut compared = 0;
    for ((archive, parsed), (go, end)) in archives.iter().zip(&parsed).zip(lists) {
        assert_eq!(end, Ok(()), "{}", archive.display());
        compare(archive, parsed, &go);
        compared += go.len();
    }
    eprintln!(
        "{compared} entries of {} archives are as Go reads them",
        archives.len()
    );
}

/// Why this parser refuses an archive that Go's reader accepts, on purpose; anything else is a defect.
fn refused_on_purpose(error: &TarError) -> bool {
    let TarError::Entry { problem, .. } = error else {
        return false;
    };
    // containerd refuses what is not in this list, too; Go's reader knows nothing of images.
    matches!(
        problem,
        EntryProblem::Type(_)
            | EntryProblem::Path(_)
            | EntryProblem::SymlinkTarget(_)
            | EntryProblem::LinkTarget
            | EntryProblem::XattrName(_)
            | EntryProblem::Owner(..)
            | EntryProblem::Device(..)
    )
}

/// The archives that Go's own tests read, many of them broken in one way each.
fn go_test_archives() -> Vec<PathBuf> {
    let Ok(output) = Command::new("go").args(["env", "GOROOT"]).output() else {
        eprintln!("SKIPPED: go is not available");
        return Vec::new();
    };
    let root = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let Ok(files) = fs::read_dir(root.join("src/archive/tar/testdata")) else {
        eprintln!("SKIPPED: Go is installed without the test data of archive/tar");
        return Vec::new();
    };
    let archives = files.map(|file| file.unwrap().path());
    let mut archives: Vec<PathBuf> = archives
        .filter(|path| path.extension().is_some_and(|e| e == "tar"))
        .collect();
    archives.sort();
    archives
}

/// Sound archives in which fields, records and long names compete, or say what is easily misread.
fn peculiar_archives(directory: &Path) -> Vec<PathBuf> {
    let file = || Block::new(b'0', b"name", 3).member(b"abc");
    let path = |path: &[u8]| pax(b'x', &[(b"path", path)]);
    // Sun's tar summed bytes as signed ones.
    let mut signed = Block::new(b'0', b"\xff\xfe\xfd", 0).finish();
    signed[148..156].fill(b' ');
    let sum: i32 = signed.iter().map(|&byte| i32::from(byte.cast_signed())).sum();
    signed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let star = Block::new(b'0', b"name", 0)
        .with(345, b"prefix")
        .with(476, b"00000000001\0")
        .with(508, b"tar\0");
    let unknown_sparse: &[(&[u8], &[u8])] = &[(b"GNU.sparse.major", b"2"), (b"GNU.sparse.map", b"1,1")];
    let named_sparse: &[(&[u8], &[u8])] = &[
        (b"GNU.sparse.map", b"4,3"),
        (b"GNU.sparse.numblocks", b"1"),
        (b"GNU.sparse.size", b"9"),
        (b"GNU.sparse.name", b"real"),
        (b"path", b"placeholder"),
    ];
    let archives: &[(&str, Vec<u8>)] = &[
        (
            "long-name-then-path",
            [gnu_long(b'L', b"long"), path(b"path"), file()].concat(),
        ),
        (
            "path-then-long-name",
            [path(b"path"), gnu_long(b'L', b"long"), file()].concat(),
        ),
        ("empty-long-name", [gnu_long(b'L', b""), file()].concat()),
        ("empty-path", [path(b""), file()].concat()),
        (
            "two-headers",
            [path(b"first"), pax(b'x', &[(b"uid", b"7")]), file()].concat(),
        ),
        (
            "global-header-drops-local",
            [path(b"path"), pax(b'g', &[(b"gid", b"9")]), file(), file()].concat(),
        ),
        ("header-at-the-end", [file(), path(b"path")].concat()),
        (
            "negative-fraction",
            [pax(b'x', &[(b"mtime", b"-0.5")]), file()].concat(),
        ),
        (
            "plus-sign",
            [pax(b'x', &[(b"uid", b"+5"), (b"mtime", b"+1.5")]), file()].concat(),
        ),
        (
            "size-in-record",
            [
                pax(b'x', &[(b"size", b"600")]),
                Block::new(b'0', b"n", 1).member(&[b'x'; 600]),
            ]
            .concat(),
        ),
        ("signed-checksum", signed),
        ("star", star.finish()),
        (
            "prefix",
            Block::new(b'0', b"name", 0).with(345, &[b'p'; 155]).finish(),
        ),
        (
            "prefix-in-gnu",
            Block::gnu(b'0', b"name", 0)
                .with(345, b"go/before/one/eight")
                .finish(),
        ),
        (
            "times-in-gnu",
            Block::gnu(b'0', b"name", 0)
                .with(345, b"00000000001\x0000000000002\0")
                .finish(),
        ),
        ("old-directory", Block::new(0, b"dir/", 5).finish()),
        ("file-with-slash", Block::new(b'0', b"file/", 3).member(b"abc")),
        (
            "hard-link-with-size",
            [
                file(),
                Block::new(b'1', b"l", 3).with(157, b"name").finish(),
                file(),
            ]
            .concat(),
        ),
        (
            "directory-with-size",
            [Block::new(b'5', b"d", 700).finish(), file()].concat(),
        ),
        ("contiguous", Block::new(b'7', b"c", 3).member(b"abc")),
        ("unknown-sparse", [pax(b'x', unknown_sparse), file()].concat()),
        ("named-sparse", [pax(b'x', named_sparse), file()].concat()),
        ("one-end-block", [file(), vec![0; 512]].concat()),
        (
            "garbage-behind-the-end",
            [file(), vec![0; 1024], vec![7; 100]].concat(),
        ),
        ("no-padding", file()[..515].to_vec()),
    ];
    let write = |(name, bytes): &(&str, Vec<u8>)| {
        let path = directory.join(format!("{name}.tar"));
        assert!(parse_cut(bytes, &[100]).is_ok(), "{name}");
        fs::write(&path, bytes).unwrap();
        path
    };
    archives.iter().map(write).collect()
}

/// Archives that differ from a sound one in one place.
fn mutants(directory: &Path) -> Vec<PathBuf> {
    let base = [
        pax(
            b'x',
            &[
                (b"path", b"long/name"),
                (b"mtime", b"-1.5"),
                (b"SCHILY.xattr.user.a", b"v"),
            ],
        ),
        Block::new(b'0', b"a", 5).member(b"hello"),
        Block::gnu(b'2', b"x", 0).with(157, b"y").finish(),
        pax(
            b'x',
            &[
                (b"GNU.sparse.map", b"10,5"),
                (b"GNU.sparse.numblocks", b"1"),
                (b"GNU.sparse.size", b"99"),
            ],
        ),
        Block::new(b'0', b"s", 5).member(b"12345"),
        Block::gnu(b'S', b"old", 5)
            .with(386, b"00000010000\x0000000000005\0")
            .with(483, b"00000020000\0")
            .finish(),
        b"12345".to_vec(),
        vec![0; 507 + 1024],
    ]
    .concat();
    let mut archives = Vec::new();
    // A fixed walk over positions and values: every run tests the same.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for number in 0..1000 {
        let mut bytes = base.clone();
        for _ in 0..2 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = (state >> 8) as usize % bytes.len();
            bytes[at] =
                [0, b'0', b'7', b' ', b'9', 0x80, 0xff, b'/', state as u8][(state >> 40) as usize % 9];
        }
        for block in bytes
            .chunks_exact_mut(512)
            .filter(|block| &block[257..262] == b"ustar")
        {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let path = directory.join(format!("mutant-{number}.tar"));
        fs::write(&path, bytes).unwrap();
        archives.push(path);
    }
    archives
}

#[test]
fn what_go_refuses_is_refused_and_what_it_accepts_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let mut archives = go_test_archives();
    archives.extend(peculiar_archives(directory.path()));
    archives.extend(mutants(directory.path()));
    let Some(lists) = go_lists(&archives) else { return };
    let (mut accepted, mut refused, mut on_purpose) = (0, 0, 0);
    for (archive, (go, end)) in archives.iter().zip(lists) {
        let parsed = parse_cut(&fs::read(archive).unwrap(), &[300]);
        match (parsed, end) {
            (Ok(parsed), Ok(())) => {
                compare(archive, &parsed, &go);
                accepted += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            (Err(error), Ok(())) if refused_on_purpose(&error) => on_purpose += 1,
            (Ok(_), Err(message)) => panic!("{}: Go refuses: {message}", archive.display()),
            (Err(error), Ok(())) => panic!("{}: only refused here: {error}", archive.display()),
        }
    }
    eprintln!(
        "{accepted} archives accepted by both, {refused} refused by both, {on_purpose} on purpose only here"
    );
}
