//! Random archives in every dialect, cut at random places, against the model that they were made from.

use proptest::collection::vec;
use proptest::prelude::*;
use xebec_format::layer::{Entry, EntryKind, Metadata, Xattr};
use xebec_format::path::LayerPath;

use crate::tar_support::{Block, END, gnu_long, parse_cut, pax};

/// How an entry is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Pax,
    Gnu,
}

/// How a file's contents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sparse {
    No,
    OldGnu,
    Pax00,
    Pax01,
    Pax10,
}

#[derive(Clone, Debug)]
enum Kind {
    Directory,
    File { contents: Contents, sparse: Sparse },
    Symlink(Vec<u8>),
    Hardlink(Vec<Vec<u8>>),
    Device { block: bool, major: u32, minor: u32 },
    Fifo,
    Whiteout,
    Opaque,
}

/// Segments of data with the length of the hole before each, and the length of the hole at the end.
#[derive(Clone, Debug)]
struct Contents {
    segments: Vec<(u64, Vec<u8>)>,
    end_hole: u64,
}

impl Contents {
    fn whole(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        for (hole, data) in &self.segments {
            whole.resize(whole.len() + *hole as usize, 0);
            whole.extend(data);
        }
        whole.resize(whole.len() + self.end_hole as usize, 0);
        whole
    }

    fn stored(&self) -> Vec<u8> {
        self.segments.iter().flat_map(|(_, data)| data.clone()).collect()
    }

    fn map(&self) -> Vec<(u64, u64)> {
        let mut end = 0;
        let segment = |(hole, data): &(u64, Vec<u8>)| {
            let offset = end + hole;
            end = offset + data.len() as u64;
            (offset, data.len() as u64)
        };
        self.segments.iter().map(segment).collect()
    }
}

#[derive(Clone, Debug)]
struct Model {
    path: Vec<Vec<u8>>,
    kind: Kind,
    metadata: Metadata,
    dialect: Dialect,
    /// Written in front of the path: what normalizing takes away.
    lead: &'static str,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => 1u8..=255, 12 => b'a'..=b'z'].prop_map(|b| if b == b'/' { b'_' } else { b });
    let name = prop_oneof![6 => vec(byte.clone(), 1..12), 1 => vec(byte, 100..=255)];
    name.prop_map(|name| match name.as_slice() {
        b"." | b".." => b"dots".to_vec(),
        name if name.starts_with(b".wh.") => b"whiteout".to_vec(),
        name => name.to_vec(),
    })
}

fn path() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop_oneof![12 => vec(name(), 1..4), 1 => vec(name(), 30..60)]
}

fn contents() -> impl Strategy<Value = Contents> {
    let hole = prop_oneof![
        Just(0u64),
        1u64..100,
        (0u64..4).prop_map(|n| n * 4096),
        0u64..40_000
    ];
    let data = prop_oneof![vec(1u8..255, 1..40), (1usize..9000).prop_map(|n| vec![b'x'; n])];
    (vec((hole.clone(), data), 0..30), hole).prop_map(|(segments, end_hole)| Contents { segments, end_hole })
}

fn kind() -> impl Strategy<Value = Kind> {
    use Sparse::{No, OldGnu, Pax00, Pax01, Pax10};
    let sparse = prop::sample::select(vec![No, No, No, OldGnu, Pax00, Pax01, Pax10]);
    prop_oneof![
        2 => Just(Kind::Directory),
        6 => (contents(), sparse).prop_map(|(contents, sparse)| Kind::File { contents, sparse }),
        1 => vec(1u8..255, 1..300).prop_map(Kind::Symlink),
        1 => path().prop_map(Kind::Hardlink),
        1 => (any::<bool>(), 0u32..4096, 0u32..1 << 20)
            .prop_map(|(block, major, minor)| Kind::Device { block, major, minor }),
        1 => Just(Kind::Fifo),
        1 => Just(Kind::Whiteout),
        1 => Just(Kind::Opaque),
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let owner = || prop_oneof![0u32..70_000, any::<u32>()];
    let seconds = prop_oneof![0i64..2_000_000_000, -3_000_000_000i64..40_000_000_000];
    let nanoseconds = prop_oneof![Just(0u32), 0u32..1_000_000_000];
    let xattr_name = prop::sample::select(vec!["user.a", "user.b", "security.capability"]);
    let xattrs = prop::collection::btree_map(xattr_name, vec(any::<u8>(), 0..40), 0..3);
    (0u16..0o10000, owner(), owner(), seconds, nanoseconds, xattrs).prop_map(
        |(mode, uid, gid, mtime, mtime_nanoseconds, xattrs)| {
            let xattr = |(name, value): (&str, Vec<u8>)| Xattr {
                name: name.as_bytes().to_vec(),
                value,
            };
            let xattrs = xattrs.into_iter().map(xattr).collect();
            Metadata {
                mode,
                uid,
                gid,
                mtime,
                mtime_nanoseconds,
                xattrs,
            }
        },
    )
}

fn model() -> impl Strategy<Value = Model> {
    let dialect = prop::sample::select(vec![Dialect::Pax, Dialect::Gnu]);
    let lead = prop::sample::select(vec!["", "./", "/", "././", "//"]);
    (path(), kind(), metadata(), dialect, lead).prop_map(|(path, kind, mut metadata, mut dialect, lead)| {
        match &kind {
            Kind::File {
                sparse: Sparse::OldGnu,
                ..
            } => dialect = Dialect::Gnu,
            Kind::File {
                sparse: Sparse::Pax00 | Sparse::Pax01 | Sparse::Pax10,
                ..
            } => dialect = Dialect::Pax,
            Kind::Whiteout | Kind::Opaque => metadata = Metadata::default(),
            Kind::Symlink(_) | Kind::Device { .. } | Kind::Fifo => {
                metadata.xattrs.retain(|xattr| !xattr.name.starts_with(b"user."));
            }
            _ => {}
        }
        // GNU headers have neither.
        if dialect == Dialect::Gnu {
            metadata.mtime_nanoseconds = 0;
            metadata.xattrs.clear();
        }
        Model {
            path,
            kind,
            metadata,
            dialect,
            lead,
        }
    })
}

/// A number as GNU writes it: octal if it fits, base-256 if not.
fn gnu_number(value: i64, width: usize) -> Vec<u8> {
    let octal = format!("{value:0width$o}", width = width - 1);
    if value >= 0 && octal.len() < width {
        return [octal.as_bytes(), b"\0"].concat();
    }
    let mut bytes = vec![if value < 0 { 0xff } else { 0 }; width];
    let value = value.to_be_bytes();
    let take = value.len().min(width);
    bytes[width - take..].copy_from_slice(&value[value.len() - take..]);
    bytes[0] |= 0x80;
    bytes
}

fn pax_time(seconds: i64, nanoseconds: u32) -> String {
    match (seconds < 0, nanoseconds) {
        (_, 0) => seconds.to_string(),
        (false, _) => format!("{seconds}.{nanoseconds:09}"),
        (true, _) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
    }
}

impl Model {
    fn raw_path(&self) -> Vec<u8> {
        let mut names = self.path.clone();
        match self.kind {
            Kind::Whiteout => {
                let last = names.last_mut().unwrap();
                last.truncate(251);
                last.splice(0..0, *b".wh.");
            }
            Kind::Opaque => names.push(b".wh..wh..opq".to_vec()),
            _ => {}
        }
        let slash = if matches!(self.kind, Kind::Directory) {
            &b"/"[..]
        } else {
            b""
        };
        [self.lead.as_bytes(), &names.join(&b'/'), slash].concat()
    }

    fn entry(&self) -> Entry {
        let mut path = self.path.clone();
        let kind = match &self.kind {
            Kind::Directory => EntryKind::Directory,
            // Extents are checked by reading the contents.
            Kind::File { contents, .. } => EntryKind::File {
                size: contents.whole().len() as u64,
                extents: Vec::new(),
            },
            Kind::Symlink(target) => EntryKind::Symlink {
                target: target.clone(),
            },
            Kind::Hardlink(target) => EntryKind::Hardlink {
                target: LayerPath::normalize(&target.join(&b'/')).unwrap(),
            },
            Kind::Device {
                block: false,
                major,
                minor,
            } => EntryKind::CharDevice {
                major: *major,
                minor: *minor,
            },
            Kind::Device {
                block: true,
                major,
                minor,
            } => EntryKind::BlockDevice {
                major: *major,
                minor: *minor,
            },
            Kind::Fifo => EntryKind::Fifo,
            Kind::Whiteout => {
                path.last_mut().unwrap().truncate(251);
                EntryKind::Whiteout
            }
            Kind::Opaque => EntryKind::Opaque,
        };
        let path = LayerPath::normalize(&path.join(&b'/')).unwrap();
        Entry {
            path,
            metadata: self.metadata.clone(),
            kind,
        }
    }

    fn link(&self) -> Vec<u8> {
        match &self.kind {
            Kind::Symlink(target) => target.clone(),
            Kind::Hardlink(target) => [self.lead.as_bytes(), &target.join(&b'/')].concat(),
            _ => Vec::new(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (type_flag, stored) = match &self.kind {
            Kind::Directory => (b'5', Vec::new()),
            Kind::File {
                contents,
                sparse: Sparse::No,
            } => (b'0', contents.whole()),
            Kind::File {
                contents,
                sparse: Sparse::OldGnu,
            } => (b'S', contents.stored()),
            Kind::File {
                contents,
                sparse: Sparse::Pax10,
            } => (b'0', sparse_1_0(contents)),
            Kind::File { contents, .. } => (b'0', contents.stored()),
            Kind::Symlink(_) => (b'2', Vec::new()),
            Kind::Hardlink(_) => (b'1', Vec::new()),
            Kind::Device { block, .. } => (if *block { b'4' } else { b'3' }, Vec::new()),
            Kind::Fifo => (b'6', Vec::new()),
            Kind::Whiteout | Kind::Opaque => (b'0', Vec::new()),
        };
        let mut block = match self.dialect {
            Dialect::Pax => self.pax_block(type_flag, stored.len(), out),
            Dialect::Gnu => self.gnu_block(type_flag, stored.len(), out),
        };
        block.put(100, format!("{:07o}\0", self.metadata.mode).as_bytes());
        if let Kind::Device { major, minor, .. } = self.kind {
            block
                .put(329, format!("{major:07o}\0").as_bytes())
                .put(337, format!("{minor:07o}\0").as_bytes());
        }
        match &self.kind {
            Kind::File {
                contents,
                sparse: Sparse::OldGnu,
            } => {
                let (block, extensions) = old_sparse(block, contents);
                out.extend(block.finish());
                out.extend(extensions);
                out.extend(&stored);
                out.resize(out.len().next_multiple_of(512), 0);
            }
            _ => out.extend(block.member(&stored)),
        }
    }

    fn gnu_block(&self, type_flag: u8, stored: usize, out: &mut Vec<u8>) -> Block {
        let (path, link) = (self.raw_path(), self.link());
        if link.len() > 100 {
            out.extend(gnu_long(b'K', &link));
        }
        if path.len() > 100 {
            out.extend(gnu_long(b'L', &path));
        }
        let mut block = Block::gnu(type_flag, &path[..path.len().min(100)], stored as u64);
        block.put(157, &link[..link.len().min(100)]);
        block
            .put(108, &gnu_number(self.metadata.uid.into(), 8))
            .put(116, &gnu_number(self.metadata.gid.into(), 8));
        block.put(136, &gnu_number(self.metadata.mtime, 12));
        block
    }

    fn pax_block(&self, type_flag: u8, stored: usize, out: &mut Vec<u8>) -> Block {
        let metadata = &self.metadata;
        let mut records: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut add = |key: &str, value: Vec<u8>| records.push((key.as_bytes().to_vec(), value));
        let (path, link) = (self.raw_path(), self.link());
        add("uid", metadata.uid.to_string().into());
        add("gid", metadata.gid.to_string().into());
        add(
            "mtime",
            pax_time(metadata.mtime, metadata.mtime_nanoseconds).into(),
        );
        add("linkpath", link);
        for xattr in &metadata.xattrs {
            let key = format!("SCHILY.xattr.{}", std::str::from_utf8(&xattr.name).unwrap());
            add(&key, xattr.value.clone());
        }
        let mut named = false;
        if let Kind::File { contents, sparse } = &self.kind {
            let (map, size) = (contents.map(), contents.whole().len().to_string());
            let numbers: Vec<String> = map
                .iter()
                .map(|(offset, length)| format!("{offset},{length}"))
                .collect();
            match sparse {
                Sparse::No | Sparse::OldGnu => {}
                Sparse::Pax00 => {
                    add("GNU.sparse.major", b"0".into());
                    add("GNU.sparse.minor", b"0".into());
                    add("GNU.sparse.size", size.into());
                    add("GNU.sparse.numblocks", map.len().to_string().into());
                    for (offset, length) in map {
                        add("GNU.sparse.offset", offset.to_string().into());
                        add("GNU.sparse.numbytes", length.to_string().into());
                    }
                }
                Sparse::Pax01 => {
                    named = true;
                    add("GNU.sparse.major", b"0".into());
                    add("GNU.sparse.minor", b"1".into());
                    add("GNU.sparse.name", path.clone());
                    add("GNU.sparse.size", size.into());
                    add("GNU.sparse.numblocks", map.len().to_string().into());
                    add("GNU.sparse.map", numbers.join(",").into());
                }
                Sparse::Pax10 => {
                    named = true;
                    add("GNU.sparse.major", b"1".into());
                    add("GNU.sparse.minor", b"0".into());
                    add("GNU.sparse.name", path.clone());
                    add("GNU.sparse.realsize", size.into());
                }
            }
        }
        if !named {
            records.push((b"path".to_vec(), path));
        }
        let records: Vec<(&[u8], &[u8])> = records
            .iter()
            .map(|(k, v)| (k.as_slice(), v.as_slice()))
            .collect();
        out.extend(pax(b'x', &records));
        Block::new(type_flag, b"in the records", stored as u64)
    }
}

fn sparse_1_0(contents: &Contents) -> Vec<u8> {
    let mut text = format!("{}\n", contents.segments.len());
    for (offset, length) in contents.map() {
        text += &format!("{offset}\n{length}\n");
    }
    let mut stored = text.into_bytes();
    stored.resize(stored.len().next_multiple_of(512), 0);
    stored.extend(contents.stored());
    stored
}

/// Writes the map of an old GNU sparse file: four segments in the header, 21 in each extension block.
fn old_sparse(mut block: Block, contents: &Contents) -> (Block, Vec<u8>) {
    let map: Vec<Vec<u8>> = contents
        .map()
        .iter()
        .map(|&(offset, length)| [gnu_number(offset as i64, 12), gnu_number(length as i64, 12)].concat())
        .collect();
    block.put(483, &gnu_number(contents.whole().len() as i64, 12));
    for (index, segment) in map.iter().take(4).enumerate() {
        block.put(386 + 24 * index, segment);
    }
    let rest = map.get(4..).unwrap_or_default();
    block.0[482] = u8::from(!rest.is_empty());
    let mut extensions = Vec::new();
    for (index, chunk) in rest.chunks(21).enumerate() {
        let mut extension = chunk.concat();
        extension.resize(512, 0);
        extension[504] = u8::from((index + 1) * 21 < rest.len());
        extensions.extend(extension);
    }
    (block, extensions)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn archives_mean_what_they_were_made_from(
        models in vec(model(), 0..8),
        cuts in vec(1usize..3000, 1..20),
        end_blocks in 0usize..4,
        garbage in vec(any::<u8>(), 0..600),
    ) {
        let mut archive = Vec::new();
        for model in &models {
            model.encode(&mut archive);
        }
        archive.resize(archive.len() + 512 * end_blocks, 0);
        if end_blocks >= 2 {
            archive.extend(garbage);
        }
        // A hard link to itself is refused; that is for another test.
        let own = |model: &Model| matches!(&model.kind, Kind::Hardlink(target) if *target == model.path);
        prop_assume!(!models.iter().any(own));
        let parsed = parse_cut(&archive, &cuts).unwrap();
        parsed.check_extents();
        prop_assert_eq!(parsed.entries.len(), models.len());
        for (found, model) in parsed.entries.iter().zip(&models) {
            let mut plain = found.clone();
            if let EntryKind::File { extents, .. } = &mut plain.kind {
                extents.clear();
            }
            prop_assert_eq!(&plain, &model.entry());
            if let Kind::File { contents, .. } = &model.kind {
                prop_assert!(parsed.contents(found) == contents.whole(), "contents of {}", found.path);
            }
        }
        prop_assert_eq!(parse_cut(&archive, &[1]).unwrap(), parsed);
    }
}

#[test]
fn an_empty_archive_has_no_entries() {
    for archive in [&b""[..], &END[..512], &END] {
        assert!(parse_cut(archive, &[1]).unwrap().entries.is_empty());
    }
}
