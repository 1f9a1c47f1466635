//! What a block of a tar stream says about where contents are. No more is read of it.

/// Bytes of a block.
pub(super) const BLOCK: usize = 512;
/// Where a header of a sparse file says that a map of it follows, and where that map says that it goes on.
pub(super) const SPARSE_MORE_IN_HEADER: usize = 482;
pub(super) const SPARSE_MORE_IN_MAP: usize = 504;

/// A header, as far as it matters.
pub(super) struct Header {
    kind: u8,
    /// Bytes of contents that follow, before padding.
    pub(super) size: u64,
    /// The path.
    pub(super) name: Vec<u8>,
}

/// What the body of a member is that is no member itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meta {
    /// PAX records about the next member.
    Records,
    /// The name of the next member.
    Name,
    /// What does not matter here: the target of a link, records about all members.
    Other,
}

/// What bodies said of the next member.
#[derive(Default)]
pub(super) struct Said {
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Header {
    /// What its body is, if it is no member itself.
    pub(super) fn meta(&self) -> Option<Meta> {
        match self.kind {
            b'x' | b'X' => Some(Meta::Records),
            b'L' => Some(Meta::Name),
            b'K' | b'g' => Some(Meta::Other),
            _ => None,
        }
    }

    /// Whether bytes follow. Links, devices, directories and pipes have none, even if a size is given.
    pub(super) fn has_contents(&self) -> bool {
        !(b'1'..=b'6').contains(&self.kind)
    }

    /// Whether it is a sparse file of old GNU tar.
    pub(super) fn is_sparse(&self) -> bool {
        self.kind == b'S'
    }
}

impl Said {
    /// Reads a body.
    pub(super) fn learn(&mut self, meta: Meta, body: &[u8]) {
        match meta {
            Meta::Name => self.name = Some(until_nul(body).to_vec()),
            Meta::Records => self.learn_records(body),
            Meta::Other => {}
        }
    }

    fn learn_records(&mut self, mut body: &[u8]) {
        while let Some((record, rest)) = split_record(body) {
            body = rest;
            let mut parts = record.splitn(2, |&byte| byte == b'=');
            match (parts.next(), parts.next()) {
                (Some(b"path"), Some(value)) => self.name = Some(value.to_vec()),
                (Some(b"size"), Some(value)) => self.size = decimal(value),
                _ => {}
            }
        }
    }

    /// Changes the header that all this is about.
    pub(super) fn apply_to(self, header: &mut Header) {
        if let Some(size) = self.size {
            header.size = size;
        }
        if let Some(name) = self.name {
            header.name = name;
        }
    }
}

/// A PAX record without its length and its line feed, and what follows it.
fn split_record(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = body.iter().take(20).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(body.get(..space)?)?).ok()?;
    let record = body.get(space + 1..length)?.strip_suffix(b"\n")?;
    Some((record, body.get(length..)?))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Zeros between contents of so many bytes and the next block.
pub(super) fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

/// The header that a block is, if its checksum is right and its size a number.
pub(super) fn header(block: &[u8]) -> Option<Header> {
    let sum_field = block.get(148..156)?;
    let rest = block.get(..148)?.iter().chain(block.get(156..BLOCK)?);
    let sum = 8 * u64::from(b' ') + rest.map(|&byte| u64::from(byte)).sum::<u64>();
    if number(sum_field)? != sum {
        return None;
    }
    Some(Header {
        kind: *block.get(156)?,
        size: number(block.get(124..136)?)?,
        name: until_nul(block.get(..100)?).to_vec(),
    })
}

/// A field: octal digits between spaces and zeros, or, marked by the highest bit, the bytes of a number of up to 63 bits.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let fold = |number: u64, &byte: &u8| (number >> 55 == 0).then_some(number << 8 | u64::from(byte));
        return rest.iter().try_fold(u64::from(first & 0x7f), fold);
    }
    let begin = field.iter().position(|&byte| byte != b' ').unwrap_or(field.len());
    let digits = field.get(begin..)?;
    let end = digits
        .iter()
        .position(|&byte| byte == b' ' || byte == 0)
        .unwrap_or(digits.len());
    digits.get(..end)?.iter().try_fold(0, |number: u64, &byte| {
        (b'0'..=b'7')
            .contains(&byte)
            .then(|| number << 3 | u64::from(byte - b'0'))
    })
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Whether a block with parts of a sparse map says that another follows.
pub(super) fn sparse_goes_on(block: &[u8], at: usize) -> bool {
    block.get(at).is_some_and(|&byte| byte != 0)
}
