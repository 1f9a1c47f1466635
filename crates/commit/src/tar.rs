//! Entries of a tar file: a POSIX header (`ustar`), and PAX records before it for what does not fit.
//!
//! The `tar` crate writes no sub-second times, and long names in GNU's way, in which names that are no UTF-8 and extended attributes
//! would need PAX records anyway. One form for all is shorter, and the same for each reader.

/// Size of a block, and of a header.
pub(crate) const BLOCK: usize = 512;
/// What ends an archive: two blocks of zeros.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
/// The name of all PAX headers: readers do not look at it.
const PAX_NAME: &[u8] = b"PaxHeaders.0/records";
/// Longest path in a header's own field.
const NAME: usize = 100;
/// Largest number in a field of eight bytes: seven octal digits.
const SMALL: u64 = 0o777_7777;
/// Largest number in a field of twelve bytes.
const LARGE: u64 = 0o777_7777_7777;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// Of that size in bytes.
    File(u64),
    Directory,
    /// With its target.
    Symlink(&'a [u8]),
    /// Another name of an entry before it, by that entry's path.
    Link(&'a [u8]),
    Fifo,
    Character(u32, u32),
    Block(u32, u32),
}

/// One entry, without its contents.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    /// Without a slash at its beginning; a directory's ends with one.
    pub(crate) path: &'a [u8],
    pub(crate) kind: Kind<'a>,
    /// Permissions, with the bits of `chmod(1)` above them.
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// Seconds since 1970, and nanoseconds after that.
    pub(crate) modified: (i64, u32),
    /// Names without a `=`, and values.
    pub(crate) xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

impl Entry<'_> {
    /// Appends headers of this entry. Its contents, and zeros up to the next block, are to follow.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let records = self.records();
        if !records.is_empty() {
            let header = Header::new(PAX_NAME, b'x', 0o644).number(124, 12, records.len() as u64);
            to.extend(header.finish());
            to.extend(&records);
            pad(to, records.len() as u64);
        }
        let (flag, target, size, device) = match self.kind {
            Kind::File(size) => (b'0', &[][..], size, None),
            Kind::Link(target) => (b'1', target, 0, None),
            Kind::Symlink(target) => (b'2', target, 0, None),
            Kind::Character(major, minor) => (b'3', &[][..], 0, Some((major, minor))),
            Kind::Block(major, minor) => (b'4', &[][..], 0, Some((major, minor))),
            Kind::Directory => (b'5', &[][..], 0, None),
            Kind::Fifo => (b'6', &[][..], 0, None),
        };
        let seconds = u64::try_from(self.modified.0).unwrap_or(0);
        let mut header = Header::new(self.path, flag, self.mode)
            .number(108, 8, u64::from(self.owner.0))
            .number(116, 8, u64::from(self.owner.1))
            .number(124, 12, size)
            .number(136, 12, seconds)
            .text(157, target);
        if let Some((major, minor)) = device {
            header = header
                .number(329, 8, u64::from(major))
                .number(337, 8, u64::from(minor));
        }
        to.extend(header.finish());
    }

    /// The PAX records for what does not fit into the header.
    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        if self.path.len() > NAME {
            record(&mut records, b"path", self.path);
        }
        if let Kind::Link(target) | Kind::Symlink(target) = self.kind
            && target.len() > NAME
        {
            record(&mut records, b"linkpath", target);
        }
        if let Kind::File(size) = self.kind
            && size > LARGE
        {
            record(&mut records, b"size", size.to_string().as_bytes());
        }
        for (name, number) in [("uid", self.owner.0), ("gid", self.owner.1)] {
            if u64::from(number) > SMALL {
                record(&mut records, name.as_bytes(), number.to_string().as_bytes());
            }
        }
        let (seconds, nanoseconds) = self.modified;
        if nanoseconds != 0 || !(0..=LARGE.cast_signed()).contains(&seconds) {
            record(&mut records, b"mtime", decimal(seconds, nanoseconds).as_bytes());
        }
        for (name, value) in self.xattrs {
            record(&mut records, &[b"SCHILY.xattr.", name.as_slice()].concat(), value);
        }
        records
    }
}

/// Appends zeros up to the next block, after so many bytes.
pub(crate) fn pad(to: &mut Vec<u8>, after: u64) {
    let over = usize::try_from(after % BLOCK as u64).unwrap_or(0);
    if over > 0 {
        to.resize(to.len() + BLOCK - over, 0);
    }
}

/// A time as PAX has it: a decimal number, without zeros at its end.
fn decimal(seconds: i64, nanoseconds: u32) -> String {
    // A time before 1970 is so many seconds before, less a fraction.
    let (sign, whole, part) = match (seconds < 0, nanoseconds) {
        (false, part) => ("", seconds.unsigned_abs(), part),
        (true, 0) => ("-", seconds.unsigned_abs(), 0),
        (true, part) => ("-", seconds.unsigned_abs() - 1, 1_000_000_000 - part),
    };
    let text = format!("{sign}{whole}.{part:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Appends a record: its own length, which counts itself, a name and a value.
fn record(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let rest = name.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    to.extend(length.to_string().as_bytes());
    to.push(b' ');
    to.extend(name);
    to.push(b'=');
    to.extend(value);
    to.push(b'\n');
}

/// A header that is being filled.
struct Header([u8; BLOCK]);

impl Header {
    fn new(path: &[u8], flag: u8, mode: u32) -> Self {
        Self([0; BLOCK])
            .text(0, path)
            .number(100, 8, u64::from(mode))
            .number(108, 8, 0)
            .number(116, 8, 0)
            .number(124, 12, 0)
            .number(136, 12, 0)
            .text(156, &[flag])
            .text(257, b"ustar\x0000")
    }

    /// Writes as much of a text as a name's field has room for; a PAX record has all of it.
    fn text(mut self, at: usize, text: &[u8]) -> Self {
        let text = text.get(..NAME).unwrap_or(text);
        if let Some(field) = self.0.get_mut(at..at + text.len()) {
            field.copy_from_slice(text);
        }
        self
    }

    /// Writes an octal number and a NUL; the largest one for a number that does not fit, of which a PAX record has the value.
    fn number(self, at: usize, width: usize, value: u64) -> Self {
        let digits = width - 1;
        let most = if width == 8 { SMALL } else { LARGE };
        let text = format!("{:0digits$o}\0", value.min(most));
        self.text(at, text.as_bytes())
    }

    fn finish(mut self) -> [u8; BLOCK] {
        // Of the checksum itself, the blanks count.
        self = self.text(148, b"        ");
        let sum: u64 = self.0.iter().map(|&byte| u64::from(byte)).sum();
        self.text(148, format!("{sum:06o}\0 ").as_bytes()).0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// The program that reads it is another one's. It takes a line for the end of a record, so no value has one here.
    #[test]
    fn another_reader_finds_what_was_written() {
        let long = [b"d/".repeat(70), b"\xff=name".to_vec()].concat();
        let xattrs = [(b"user.\xfe".to_vec(), b"\0\xff".to_vec())];
        let mut bytes = Vec::new();
        let entry = Entry {
            path: &long,
            kind: Kind::File(3),
            mode: 0o4755,
            owner: (3_000_000_000, 7),
            modified: (-2, 500_000_000),
            xattrs: &xattrs,
        };
        entry.write(&mut bytes);
        bytes.extend(b"abc");
        pad(&mut bytes, 3);
        let device = Entry {
            path: b"dev/null",
            kind: Kind::Character(1, 3),
            mode: 0o666,
            owner: (0, 0),
            modified: (12, 0),
            xattrs: &[],
        };
        device.write(&mut bytes);
        bytes.extend(END);
        assert_eq!(bytes.len() % BLOCK, 0);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut entries = archive.entries().unwrap();
        let mut first = entries.next().unwrap().unwrap();
        assert_eq!(&*first.path_bytes(), long);
        assert_eq!(first.header().mode().unwrap(), 0o4755);
        let records: Vec<(Vec<u8>, Vec<u8>)> = first
            .pax_extensions()
            .unwrap()
            .unwrap()
            .map(|record| record.unwrap())
            .map(|record| (record.key_bytes().to_vec(), record.value_bytes().to_vec()))
            .collect();
        let value = |key: &[u8]| records.iter().find(|(name, _)| name == key).unwrap().1.clone();
        assert_eq!(value(b"uid"), b"3000000000");
        assert_eq!(value(b"mtime"), b"-1.5");
        assert_eq!(value(b"SCHILY.xattr.user.\xfe"), b"\0\xff");
        let mut contents = Vec::new();
        first.read_to_end(&mut contents).unwrap();
        assert_eq!(contents, b"abc");
        let second = entries.next().unwrap().unwrap();
        assert_eq!(second.header().device_minor().unwrap(), Some(3));
        assert_eq!(second.header().mtime().unwrap(), 12);
        assert!(entries.next().is_none());
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for length in 0..1200 {
            let mut bytes = Vec::new();
            record(&mut bytes, b"k", &vec![b'v'; length]);
            let said = bytes.split(|&byte| byte == b' ').next().unwrap();
            let said: usize = std::str::from_utf8(said).unwrap().parse().unwrap();
            assert_eq!(said, bytes.len());
        }
    }

    #[test]
    fn times_are_decimal_numbers() {
        let all = [
            ((0, 1), "0.000000001"),
            ((5, 0), "5"),
            ((-1, 0), "-1"),
            ((-1, 999_999_999), "-0.000000001"),
            ((1 << 40, 250_000_000), "1099511627776.25"),
        ];
        for ((seconds, nanoseconds), text) in all {
            assert_eq!(decimal(seconds, nanoseconds), text);
        }
    }
}
