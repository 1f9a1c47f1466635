//! Helpers that the tests of the tar parser share: a sink that remembers everything, and a builder of raw archives.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use xebec_format::PAGE_SIZE;
use xebec_format::layer::{Entry, EntryKind};
use xebec_index::tar::{TarError, TarLimits, TarParser, TarSink, TarSummary};

/// Everything that a parser handed on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    /// Frame and contents in the order in which they came: must be the input.
    pub(crate) stream: Vec<u8>,
    pub(crate) frame_size: u64,
    pub(crate) entries: Vec<Entry>,
    /// The data space, page by page; pages that got no contents are missing.
    pub(crate) pages: BTreeMap<u64, Vec<u8>>,
    /// End of the last contents in the data space.
    pub(crate) data_end: u64,
    pub(crate) summary: TarSummary,
}

impl TarSink for Collected {
    fn frame(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
        self.frame_size += bytes.len() as u64;
    }

    fn content(&mut self, data_offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        assert!(data_offset >= self.data_end, "contents ascend");
        assert!(!bytes.is_empty(), "contents are never empty");
        self.stream.extend_from_slice(bytes);
        self.data_end = data_offset + bytes.len() as u64;
        let (mut offset, mut left) = (data_offset, bytes);
        while !left.is_empty() {
            let within = (offset % PAGE_SIZE) as usize;
            let part = left.len().min(PAGE_SIZE as usize - within);
            let page = self.pages.entry(offset / PAGE_SIZE);
            let page = page.or_insert_with(|| vec![0; PAGE_SIZE as usize]);
            page[within..within + part].copy_from_slice(&left[..part]);
            offset += part as u64;
            left = &left[part..];
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry) {
        self.entries.push(entry);
    }
}

impl Collected {
    /// The contents of a file as a reader would see them.
    pub(crate) fn contents(&self, entry: &Entry) -> Vec<u8> {
        let EntryKind::File { size, extents } = &entry.kind else {
            panic!("{} is no file", entry.path);
        };
        let mut contents = vec![0; *size as usize];
        for extent in extents {
            for offset in (0..extent.length).step_by(PAGE_SIZE as usize) {
                let page = &self.pages[&((extent.data_offset + offset) / PAGE_SIZE)];
                let part = (extent.length - offset).min(PAGE_SIZE) as usize;
                let from = (extent.file_offset + offset) as usize;
                contents[from..from + part].copy_from_slice(&page[..part]);
                assert!(
                    page[part..].iter().all(|&byte| byte == 0),
                    "nothing behind a file's end"
                );
            }
        }
        contents
    }

    /// Extents are what the types promise, and together they are the data space.
    pub(crate) fn check_extents(&self) {
        let mut data_end = 0;
        for entry in &self.entries {
            let EntryKind::File { size, extents } = &entry.kind else {
                continue;
            };
            let mut file_end = 0;
            for (index, extent) in extents.iter().enumerate() {
                assert!(extent.length > 0 && extent.file_offset + extent.length <= *size);
                assert_eq!(
                    (extent.file_offset % PAGE_SIZE, extent.data_offset),
                    (0, data_end)
                );
                assert!(
                    index == 0 || extent.file_offset > file_end,
                    "adjacent extents are one"
                );
                file_end = extent.file_offset + extent.length;
                assert!(file_end == *size || extent.length % PAGE_SIZE == 0);
                data_end += extent.length.next_multiple_of(PAGE_SIZE);
            }
        }
        assert_eq!(data_end, self.summary.data_size);
        assert_eq!(
            self.pages.len() as u64 * PAGE_SIZE,
            data_end,
            "every page has contents"
        );
    }
}

/// Parses `archive` in slices whose lengths are taken from `cuts` in turn.
pub(crate) fn parse_cut(archive: &[u8], cuts: &[usize]) -> Result<Collected, TarError> {
    parse_limited(archive, cuts, TarLimits::default())
}

pub(crate) fn parse_limited(
    archive: &[u8],
    cuts: &[usize],
    limits: TarLimits,
) -> Result<Collected, TarError> {
    let mut collected = Collected::default();
    let mut parser = TarParser::new(limits);
    let mut left = archive;
    let mut cuts = cuts.iter().cycle();
    while !left.is_empty() {
        let length = cuts.next().copied().unwrap_or(usize::MAX).clamp(1, left.len());
        parser.push(&left[..length], &mut collected)?;
        left = &left[length..];
    }
    collected.summary = parser.finish(&mut collected)?;
    assert!(collected.stream == archive, "frame and contents are the input");
    let Collected { summary, entries, .. } = &collected;
    assert_eq!(summary.plain_size, archive.len() as u64);
    assert_eq!(summary.content_size + collected.frame_size, summary.plain_size);
    assert_eq!(summary.entries, entries.len() as u64);
    Ok(collected)
}

/// Parses `archive` in one slice.
pub(crate) fn parse(archive: &[u8]) -> Result<Collected, TarError> {
    parse_cut(archive, &[])
}

/// A header block under construction: ustar, with fields to overwrite.
#[derive(Clone)]
pub(crate) struct Block(pub(crate) [u8; 512]);

impl Block {
    pub(crate) fn new(kind: u8, name: &[u8], size: u64) -> Self {
        let mut block = Self([0; 512]);
        block
            .put(0, name)
            .put(100, b"0000644\0")
            .put(108, b"0000000\0")
            .put(116, b"0000000\0");
        block
            .put(124, format!("{size:011o}\0").as_bytes())
            .put(136, b"00000000000\0");
        block.put(257, b"ustar\x0000");
        block.0[156] = kind;
        block
    }

    pub(crate) fn gnu(kind: u8, name: &[u8], size: u64) -> Self {
        let mut block = Self::new(kind, name, size);
        block.put(257, b"ustar  \0");
        block
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.put(at, bytes);
        self
    }

    /// The block with its checksum.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.put(148, b"        ");
        let sum: u32 = self.0.iter().map(|&byte| u32::from(byte)).sum();
        self.put(148, format!("{sum:06o}\0 ").as_bytes());
        self.0.to_vec()
    }

    /// The block, then contents with padding.
    pub(crate) fn member(self, contents: &[u8]) -> Vec<u8> {
        let mut bytes = self.finish();
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// A PAX header entry with `records`.
pub(crate) fn pax(kind: u8, records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let body: Vec<u8> = records
        .iter()
        .flat_map(|(key, value)| pax_record(key, value))
        .collect();
    Block::new(kind, b"PaxHeaders/x", body.len() as u64).member(&body)
}

pub(crate) fn pax_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = [b" ", key, b"=", value, b"\n"].concat();
    let mut length = rest.len() + 1;
    while length.to_string().len() + rest.len() != length {
        length += 1;
    }
    [length.to_string().as_bytes(), &rest].concat()
}

/// A GNU long name (`L`) or link (`K`) entry.
pub(crate) fn gnu_long(kind: u8, name: &[u8]) -> Vec<u8> {
    let body = [name, b"\0"].concat();
    Block::gnu(kind, b"././@LongLink", body.len() as u64).member(&body)
}

/// Two end blocks.
pub(crate) const END: [u8; 1024] = [0; 1024];

/// Builds and runs a program of `gotools` and gives what it prints; `None` (and a message) if it cannot be built here.
pub(crate) fn go_tool<A: AsRef<OsStr>>(name: &str, arguments: &[A]) -> Option<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gotools");
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join(name);
    let mut build = Command::new("go");
    build
        .current_dir(directory)
        .args(["build", "-o"])
        .arg(&program)
        .arg(format!("./{name}"));
    match build.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!(
                "SKIPPED: go build ./{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            return None;
        }
        Err(error) => {
            eprintln!("SKIPPED: go is not available: {error}");
            return None;
        }
    }
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A directory with most things that a tar program can meet; what needs privileges is added if it can be.
pub(crate) fn make_tree(root: &Path) {
    let file = |name: &str, contents: &[u8]| fs::write(root.join(name), contents).unwrap();
    fs::create_dir_all(root.join("usr/share/some directory")).unwrap();
    file("usr/empty", b"");
    file("usr/share/small", b"hello");
    file("usr/share/page", &[7; 4096]);
    file(
        "usr/share/large",
        &(0..3_000_000u32)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8)
            .collect::<Vec<_>>(),
    );
    file(&format!("usr/{}", "n".repeat(255)), b"a long name");
    symlink("../share/small", root.join("usr/link")).unwrap();
    symlink("x".repeat(300), root.join("usr/long-link")).unwrap();
    fs::hard_link(root.join("usr/share/small"), root.join("usr/hard")).unwrap();
    fs::hard_link(
        root.join(format!("usr/{}", "n".repeat(255))),
        root.join("usr/hard-long"),
    )
    .unwrap();
    let mut deep = root.to_owned();
    for _ in 0..6 {
        deep.push("d".repeat(60));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("leaf"), b"deep").unwrap();
    fs::set_permissions(root.join("usr/share/small"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(root.join("usr/share"), fs::Permissions::from_mode(0o1777)).unwrap();
    let not_utf8: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"usr/\xff\xfe-latin-\xe9");
    fs::write(root.join(not_utf8), b"bytes").unwrap();
    for (name, segments, size) in [
        (
            "sparse",
            &[(0u64, 10usize), (100_000, 5000), (8_000_000, 1)][..],
            9_000_000,
        ),
        ("sparse-end", &[(65536, 4096)], 65536 + 4096),
        (
            "sparse-many",
            &(0..60).map(|n| (n * 20_000, 100)).collect::<Vec<_>>(),
            1_300_000,
        ),
        ("sparse-hole", &[], 1 << 20),
    ] {
        let file = fs::File::create(root.join("usr").join(name)).unwrap();
        file.set_len(size).unwrap();
        for &(offset, length) in segments {
            file.write_all_at(&vec![b'x'; length], offset).unwrap();
        }
    }
    let run = |program: &str, arguments: &[&str]| {
        let done = Command::new(program).current_dir(root).args(arguments).output();
        if !done.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: {program} {arguments:?} in the test tree: {done:?}");
        }
    };
    run("mkfifo", &["usr/fifo"]);
    run("mknod", &["usr/null", "c", "1", "3"]);
    run("mknod", &["usr/disk", "b", "259", "70000"]);
    run("touch", &["-d", "1955-11-05 06:15:00.25 UTC", "usr/old"]);
    run(
        "touch",
        &["-d", "2300-01-01 00:00:00.000000001 UTC", "usr/future"],
    );
    run("setfattr", &["-n", "user.note", "-v", "a=b\n", "usr/share/small"]);
    run("setcap", &["cap_net_raw+ep", "usr/share/page"]);
    run("chown", &["3000000000:70000", "usr/empty"]);
}
