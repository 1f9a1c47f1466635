//! PAX records: `LENGTH KEY=VALUE\n`, lengths in decimal and counting themselves.

use std::collections::BTreeMap;

use super::error::{EntryProblem, HeaderProblem};
use super::header::Header;
use super::number::{decimal, pax_time};

/// Prefix of the keys that hold extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// Where a sparse map of format 0.1 is; one of format 0.0 is turned into it.
pub(super) const SPARSE_MAP: &[u8] = b"GNU.sparse.map";

/// The records of one PAX header; of a key that repeats, the last.
#[derive(Clone, Debug, Default)]
pub(super) struct PaxRecords(BTreeMap<Vec<u8>, Vec<u8>>);

impl PaxRecords {
    /// Parses the body of a PAX header.
    pub(super) fn parse(mut body: &[u8]) -> Result<Self, HeaderProblem> {
        let mut records = BTreeMap::new();
        let mut sparse_map: Vec<&[u8]> = Vec::new();
        while !body.is_empty() {
            let (key, value, rest) = record(body).ok_or(HeaderProblem::PaxRecord)?;
            body = rest;
            // Format 0.0 repeats two keys for every segment, which a map of records cannot hold.
            let expected = [&b"GNU.sparse.offset"[..], b"GNU.sparse.numbytes"];
            if expected.contains(&key) {
                if expected.get(sparse_map.len() % 2) != Some(&key) || value.contains(&b',') {
                    return Err(HeaderProblem::PaxSparseOrder);
                }
                sparse_map.push(value);
            } else {
                records.insert(key.to_vec(), value.to_vec());
            }
        }
        if !sparse_map.is_empty() {
            records.insert(SPARSE_MAP.to_vec(), sparse_map.join(&b','));
        }
        Ok(Self(records))
    }

    /// The value of `key`; an empty value means that the header's own applies, as does a missing one.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0
            .get(key)
            .map(Vec::as_slice)
            .filter(|value| !value.is_empty())
    }

    /// Names and values of the extended attributes, ascending by name.
    pub(super) fn xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let from = self.0.range(XATTR.to_vec()..);
        from.map_while(|(key, value)| Some((key.strip_prefix(XATTR)?, value.as_slice())))
    }

    /// Replaces the fields of `header` for which there is a record.
    pub(super) fn apply(&self, header: &mut Header) -> Result<(), EntryProblem> {
        if let Some(path) = self.get(b"path") {
            header.name = path.to_vec();
        }
        if let Some(link) = self.get(b"linkpath") {
            header.link = link.to_vec();
        }
        for (key, field) in [
            ("uid", &mut header.uid),
            ("gid", &mut header.gid),
            ("size", &mut header.size),
        ] {
            if let Some(value) = self.get(key.as_bytes()) {
                *field = decimal(value).ok_or(EntryProblem::Number(key))?;
            }
        }
        for key in ["atime", "ctime", "mtime"] {
            if let Some(value) = self.get(key.as_bytes()) {
                let time = pax_time(value).ok_or(EntryProblem::Number(key))?;
                if key == "mtime" {
                    (header.mtime, header.mtime_nanoseconds) = time;
                }
            }
        }
        Ok(())
    }
}

/// Splits the first record off: key, value, rest.
fn record(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = body.iter().position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(body.get(..space)?)?).ok()?;
    // "5 a=\n" is the shortest record, and the length must reach beyond its own digits.
    if length < 5 || length <= space + 1 {
        return None;
    }
    let (record, rest) = body.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (record.get(..equals)?, record.get(equals + 1..)?);
    let is_text = matches!(key, b"path" | b"linkpath" | b"uname" | b"gname");
    let nul = if is_text {
        value.contains(&0)
    } else {
        key.contains(&0)
    };
    (!key.is_empty() && !nul).then_some((key, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_records() {
        let records = PaxRecords::parse(b"6 k=1\n19 SCHILY.xattr.a=\n5 e=\n6 k=2\n").unwrap();
        assert_eq!(records.get(b"k"), Some(&b"2"[..]));
        assert_eq!(records.get(b"e"), None);
        assert_eq!(records.xattrs().collect::<Vec<_>>(), [(&b"a"[..], &b""[..])]);
    }

    #[test]
    fn rejects_malformed_records() {
        for body in [
            &b"6 k=1"[..],
            b"7 k=1\n",
            b"5 k=1\n",
            b"x k=1\n",
            b"-6 k=1\n",
            b"6 k_1\n",
            b"5 =1\n",
            b"9 path=\0\n",
            b"99999999999999999999 k=1\n",
            b"1 ",
            b"0000000005 k=\n",
        ] {
            assert!(PaxRecords::parse(body).is_err(), "{}", body.escape_ascii());
        }
    }
}
