//! What the tests of the tar parser share: a sink that remembers everything, and a builder of raw archives.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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

/// Runs a program of `gotools`; `None` (and a message) if it cannot run here.
pub(crate) fn go_tool(name: &str, arguments: &[PathBuf]) -> Option<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gotools");
    let run = Command::new("go")
        .current_dir(directory)
        .arg("run")
        .arg(format!("./{name}"))
        .args(arguments)
        .output();
    match run {
        Ok(output) if output.status.success() => Some(String::from_utf8(output.stdout).unwrap()),
        Ok(output) => {
            eprintln!(
                "SKIPPED: go run ./{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            None
        }
        Err(error) => {
            eprintln!("SKIPPED: go is not available: {error}");
            None
        }
    }
}
