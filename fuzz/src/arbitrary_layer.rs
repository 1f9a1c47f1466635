//! Layers from arbitrary bytes: few names, so that entries meet, and otherwise anything that
//! [`LayerIndex::check`] lets through.
//!
//! Every byte string is some list of layers; where bytes are missing, zeros are read.

use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Entry, EntryKind, Extent, LayerIndex, Metadata, Span, Xattr};
use xebec_format::path::LayerPath;

/// Most layers and entries that are made of one input.
const MAX_LAYERS: usize = 6;
const MAX_ENTRIES: usize = 300;
/// Pages of each layer's data space.
const DATA_PAGES: u64 = 64;
/// Names that paths are made of: plain ones, ones that sort around them, and one as long as can be.
const NAMES: [&[u8]; 7] = [b"a", b"b", b"c", b"a.", b"\xff", b".wh.", &[b'n'; 255]];
/// Attribute names that the merge or the writer treats in a way of its own.
const XATTRS: [&[u8]; 6] = [
    b"security.capability",
    b"system.posix_acl_access",
    b"trusted.overlay.opaque",
    b"trusted.overlay.",
    b"user.overlay.whiteout",
    b"user.a",
];

/// Reads fields from arbitrary bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn number(&mut self) -> u64 {
        // Mostly small; now and then anything.
        match self.byte() {
            small @ 0..0xf0 => u64::from(small),
            shift => {
                let wide = u64::from_le_bytes(std::array::from_fn(|_| self.byte()));
                wide >> (4 * (shift & 15))
            }
        }
    }

    fn path(&mut self) -> LayerPath {
        let depth = self.byte() % 5;
        let names: Vec<&[u8]> = (0..depth).map(|_| self.pick(&NAMES)).collect();
        LayerPath::normalize(&names.join(&b'/')).unwrap_or_default()
    }

    fn pick<'n>(&mut self, from: &[&'n [u8]]) -> &'n [u8] {
        from[usize::from(self.byte()) % from.len()]
    }

    fn metadata(&mut self) -> Metadata {
        let mut metadata = Metadata {
            mode: self.number() as u16 & 0o7777,
            uid: self.number() as u32,
            gid: self.number() as u32,
            mtime: self.number() as i64,
            mtime_nanoseconds: (self.number() % 1_000_000_000) as u32,
            xattrs: Vec::new(),
        };
        for _ in 0..self.byte() % 4 {
            let value = vec![self.byte(); (self.number() % 5000) as usize];
            let mut name = self.pick(&XATTRS).to_vec();
            name.resize(name.len() + self.number() as usize % (256 - name.len()), b'x');
            metadata.xattrs.push(Xattr { name, value });
        }
        metadata.xattrs.sort();
        metadata
            .xattrs
            .dedup_by(|later, earlier| later.name == earlier.name);
        metadata
    }

    /// The target of a symbolic link, often one that leads somewhere.
    fn target(&mut self) -> Vec<u8> {
        let mut target = match self.byte() % 4 {
            0 => b"/".to_vec(),
            1 => b"../".to_vec(),
            2 => b"./".to_vec(),
            _ => Vec::new(),
        };
        target.extend(self.path().as_bytes());
        target.resize(target.len().max(1), b'.');
        target
    }

    fn file(&mut self) -> EntryKind {
        let size = self.number() << (self.byte() % 32);
        let mut extents = Vec::new();
        let mut file_page = 0;
        for _ in 0..self.byte() % 4 {
            file_page += self.number();
            let Some(left) = size.checked_sub(file_page.saturating_mul(PAGE_SIZE)) else {
                break;
            };
            let data_page = self.number() % DATA_PAGES;
            let pages = 1 + self.number() % (DATA_PAGES - data_page);
            let length = (pages * PAGE_SIZE).min(left);
            if length == 0 {
                break;
            }
            extents.push(Extent {
                file_offset: file_page * PAGE_SIZE,
                data_offset: data_page * PAGE_SIZE,
                length,
            });
            file_page += pages;
        }
        EntryKind::File { size, extents }
    }

    fn entry(&mut self) -> Entry {
        let path = self.path();
        let kind = match self.byte() % 12 {
            0..=2 => EntryKind::Directory,
            3 | 4 => self.file(),
            5 | 6 => EntryKind::Symlink {
                target: self.target(),
            },
            7 => EntryKind::Hardlink { target: self.path() },
            8 => EntryKind::CharDevice {
                major: self.number() as u32,
                minor: self.number() as u32,
            },
            9 => EntryKind::Fifo,
            10 => EntryKind::Whiteout,
            _ => EntryKind::Opaque,
        };
        let metadata = match kind {
            EntryKind::Whiteout | EntryKind::Opaque => Metadata::default(),
            _ => self.metadata(),
        };
        Entry { path, metadata, kind }
    }
}

/// Layers of arbitrary entries, those that pass [`LayerIndex::check`].
pub fn layers(bytes: &[u8]) -> Vec<LayerIndex> {
    let mut fields = Fields(bytes);
    let mut layers = Vec::new();
    let mut entries = 0;
    while !fields.0.is_empty() && layers.len() < MAX_LAYERS && entries < MAX_ENTRIES {
        let mut layer = empty_layer(layers.len());
        for _ in 0..=fields.byte() % 64 {
            layer.entries.push(fields.entry());
        }
        entries += layer.entries.len();
        if layer.check().is_ok() {
            layers.push(layer);
        }
    }
    layers
}

/// A layer without entries whose one span gives all of its data space.
fn empty_layer(number: usize) -> LayerIndex {
    let data_size = DATA_PAGES * PAGE_SIZE;
    let span = Span {
        source: 0..data_size,
        bit_offset: 0,
        plain: 0..data_size,
        data: 0..data_size,
        window: None,
        digest: Digest::of(b"span"),
    };
    LayerIndex {
        layer: Digest::of(&number.to_le_bytes()),
        layer_size: data_size,
        diff_id: None,
        codec: Codec::ZstdChunked,
        plain_size: 0,
        data_size,
        entries: Vec::new(),
        pieces: Vec::new(),
        spans: vec![span],
        windows: None,
        frame: None,
        contents: None,
    }
}
