//! Header blocks, and the PAX or GNU entries before them that carry what does not fit.

/// Size of a tar block in bytes.
pub const BLOCK: usize = 512;

/// How what does not fit the plain header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PAX extended headers (POSIX.1-2001), as Go and Python write them.
    Pax,
    /// GNU: `L` and `K` entries for long names, base-256 numbers. Cannot carry xattrs or parts of seconds.
    Gnu,
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file, type `0`.
    File,
    /// Regular file as old tars write it, with a NUL as type.
    OldFile,
    /// Regular file that asks to be contiguous, type `7`.
    ContiguousFile,
    /// Hard link, type `1`.
    Hardlink,
    /// Symbolic link, type `2`.
    Symlink,
    /// Character device, type `3`.
    CharDevice,
    /// Block device, type `4`.
    BlockDevice,
    /// Directory, type `5`.
    Directory,
    /// Named pipe, type `6`.
    Fifo,
    /// Anything else.
    Other(u8),
}

impl Kind {
    fn flag(self) -> u8 {
        match self {
            Kind::File => b'0',
            Kind::OldFile => 0,
            Kind::Hardlink => b'1',
            Kind::Symlink => b'2',
            Kind::CharDevice => b'3',
            Kind::BlockDevice => b'4',
            Kind::Directory => b'5',
            Kind::Fifo => b'6',
            Kind::ContiguousFile => b'7',
            Kind::Other(flag) => flag,
        }
    }
}

/// An entry to be written.
#[derive(Clone, Debug)]
pub struct Header {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
    pub(super) link: Vec<u8>,
    pub(super) device: Option<(u32, u32)>,
    pub(super) records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Header {
    /// An entry owned by root, last modified on 2023-11-14, mode 0755 for directories and else 0644.
    pub fn new(path: impl AsRef<[u8]>, kind: Kind) -> Self {
        Self {
            path: path.as_ref().to_vec(),
            kind,
            mode: if kind == Kind::Directory { 0o755 } else { 0o644 },
            uid: 0,
            gid: 0,
            size: 0,
            seconds: 1_700_000_000,
            nanoseconds: 0,
            link: Vec::new(),
            device: None,
            records: Vec::new(),
        }
    }

    /// Permission bits, with setuid, setgid and sticky.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Owner and group.
    pub fn owner(mut self, uid: u64, gid: u64) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Size of the contents that follow, in bytes.
    pub fn size(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    /// Modification time: seconds since 1970 (negative before) and nanoseconds to add to them.
    pub fn modified(mut self, seconds: i64, nanoseconds: u32) -> Self {
        (self.seconds, self.nanoseconds) = (seconds, nanoseconds);
        self
    }

    /// Target of a symbolic or hard link.
    pub fn link(mut self, target: impl AsRef<[u8]>) -> Self {
        self.link = target.as_ref().to_vec();
        self
    }

    /// Major and minor number of a device.
    pub fn device(mut self, major: u32, minor: u32) -> Self {
        self.device = Some((major, minor));
        self
    }

    /// An extended attribute, as a `SCHILY.xattr.` record.
    pub fn xattr(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.record(format!("SCHILY.xattr.{name}"), value)
    }

    /// Any PAX record; written before those that Xebec's builder derives.
    pub fn record(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.records
            .push((key.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// The header block and the entries that must come before it.
    pub fn encode(&self, dialect: Dialect) -> Vec<u8> {
        let mut out = Vec::new();
        match dialect {
            Dialect::Pax => {
                let records = self.pax_records();
                if !records.is_empty() {
                    out.extend(prefixed(b'x', b"PaxHeaders/entry", &encode_records(&records)));
                }
            }
            Dialect::Gnu => {
                if self.path.len() > 100 {
                    out.extend(prefixed(b'L', b"././@LongLink", &with_nul(&self.path)));
                }
                if self.link.len() > 100 {
                    out.extend(prefixed(b'K', b"././@LongLink", &with_nul(&self.link)));
                }
            }
        }
        out.extend(self.raw_block(dialect));
        out
    }

    /// The header block alone. Spoil it and call [`set_checksum`], or not.
    pub fn raw_block(&self, dialect: Dialect) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        put_text(&mut block[0..100], &self.path);
        put_number(&mut block[100..108], i128::from(self.mode), dialect);
        put_number(&mut block[108..116], i128::from(self.uid), dialect);
        put_number(&mut block[116..124], i128::from(self.gid), dialect);
        put_number(&mut block[124..136], i128::from(self.size), dialect);
        put_number(&mut block[136..148], i128::from(self.seconds), dialect);
        block[156] = self.kind.flag();
        put_text(&mut block[157..257], &self.link);
        let magic: &[u8; 8] = if dialect == Dialect::Gnu {
            b"ustar  \0"
        } else {
            b"ustar\x0000"
        };
        block[257..265].copy_from_slice(magic);
        if let Some((major, minor)) = self.device {
            put_number(&mut block[329..337], i128::from(major), dialect);
            put_number(&mut block[337..345], i128::from(minor), dialect);
        }
        set_checksum(&mut block);
        block
    }

    fn pax_records(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut records = self.records.clone();
        let mut add = |key: &str, value: &[u8]| records.push((key.as_bytes().to_vec(), value.to_vec()));
        if self.path.len() > 100 || !self.path.is_ascii() {
            add("path", &self.path);
        }
        if self.link.len() > 100 || !self.link.is_ascii() {
            add("linkpath", &self.link);
        }
        if self.nanoseconds != 0 || !fits_octal(i128::from(self.seconds), 12) {
            add("mtime", pax_time(self.seconds, self.nanoseconds).as_bytes());
        }
        for (key, value, width) in [
            ("uid", self.uid, 8),
            ("gid", self.gid, 8),
            ("size", self.size, 12),
        ] {
            if !fits_octal(i128::from(value), width) {
                add(key, value.to_string().as_bytes());
            }
        }
        records
    }
}

/// Writes the checksum of a header block into it.
pub fn set_checksum(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// PAX records as the contents of an `x` or `g` entry: "LENGTH KEY=VALUE\n", the length counting itself.
pub(super) fn encode_records(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        out.extend(format!("{length} ").into_bytes());
        out.extend(key);
        out.push(b'=');
        out.extend(value);
        out.push(b'\n');
    }
    out
}

/// An entry of type `flag` whose contents speak about the entry after it.
pub(super) fn prefixed(flag: u8, name: &[u8], contents: &[u8]) -> Vec<u8> {
    let header = Header::new(name, Kind::Other(flag))
        .size(contents.len() as u64)
        .modified(0, 0);
    let mut out = header.raw_block(Dialect::Gnu).to_vec();
    if flag != b'L' && flag != b'K' {
        out = header.raw_block(Dialect::Pax).to_vec();
    }
    out.extend(contents);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

fn with_nul(text: &[u8]) -> Vec<u8> {
    [text, &[0]].concat()
}

/// A time as PAX has it. Before 1970 the fraction counts away from zero, so -1.5 is half a second before -1.
fn pax_time(seconds: i64, nanoseconds: u32) -> String {
    match (seconds, nanoseconds) {
        (_, 0) => seconds.to_string(),
        (0.., _) => format!("{seconds}.{nanoseconds:09}"),
        _ => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
    }
}

fn put_text(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

fn fits_octal(value: i128, width: usize) -> bool {
    value >= 0 && value < 1 << (3 * (width - 1))
}

/// Octal with a closing NUL where it fits; else base-256 (GNU), or nothing since a PAX record has it.
fn put_number(field: &mut [u8], value: i128, dialect: Dialect) {
    let width = field.len();
    if fits_octal(value, width) {
        field.copy_from_slice(format!("{value:0digits$o}\0", digits = width - 1).as_bytes());
    } else if dialect == Dialect::Gnu {
        let bytes = value.to_be_bytes();
        field.copy_from_slice(&bytes[bytes.len() - width..]);
        field[0] |= 0x80;
    } else {
        field.fill(b'0');
        field[width - 1] = 0;
    }
}
