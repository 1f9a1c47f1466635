//! Reads the tree section: entries, column by column.

use super::{DecodeError, hold, limit};
use crate::PAGE_SIZE;
use crate::columns::Column;
use crate::layer::check::xattr_bytes;
use crate::layer::encode::{EXPLICIT_EXTENTS, expected_data};
use crate::layer::limits::{
    MAX_ENTRIES, MAX_EXTENTS, MAX_PATH_BYTES, MAX_SYMLINK, MAX_XATTR_BYTES, MAX_XATTR_NAME, MAX_XATTR_SET,
    MAX_XATTR_VALUE,
};
use crate::layer::weight::{Room, of_entry};
use crate::layer::{Entry, EntryKind, Extent, Metadata, Xattr};
use crate::path::{LayerPath, MAX_PATH};

/// How many bytes of entries are read between two questions whether there is room for more.
const AT_ONCE: u64 = 1 << 20;

/// Reads the entries from a section's plain bytes.
pub(super) fn read(plain: &[u8], room: &mut Room<'_>) -> Result<Vec<Entry>, DecodeError> {
    let (count, mut reader) = TreeReader::new(plain, room)?;
    // Each has a byte that says what it is.
    reader.kinds.holds(count)?;
    hold(room, (count * size_of::<Entry>()) as u64)?;
    let mut entries = Vec::with_capacity(count);
    let mut unsaid = 0;
    for _ in 0..count {
        let entry = reader.entry()?;
        unsaid += of_entry(&entry) - size_of::<Entry>() as u64;
        if unsaid >= AT_ONCE {
            hold(room, std::mem::take(&mut unsaid))?;
        }
        entries.push(entry);
    }
    hold(room, unsaid)?;
    reader.finish()?;
    Ok(entries)
}

/// Mode, owner and group.
type Owner = (u16, u32, u32);

/// The columns of the tree section, and what each row is relative to.
struct TreeReader<'a> {
    kinds: Column<'a>,
    prefix_lengths: Column<'a>,
    suffix_lengths: Column<'a>,
    suffixes: Column<'a>,
    owners: Vec<Owner>,
    owner_numbers: Column<'a>,
    seconds: Column<'a>,
    nanoseconds: Column<'a>,
    xattrs: Vec<Vec<Xattr>>,
    xattr_numbers: Column<'a>,
    sizes: Column<'a>,
    extents: Column<'a>,
    link_lengths: Column<'a>,
    links: Column<'a>,
    devices: Column<'a>,
    last_path: Vec<u8>,
    path_bytes: u64,
    xattr_bytes: u64,
    extent_count: u64,
    last_seconds: i64,
    next_data: u64,
}

impl<'a> TreeReader<'a> {
    fn new(plain: &'a [u8], room: &mut Room<'_>) -> Result<(usize, Self), DecodeError> {
        let mut section = Column::new(plain, "the tree section");
        let count = section.count(MAX_ENTRIES)?;
        let (owners, xattrs) = (section.count(MAX_ENTRIES)?, section.count(MAX_ENTRIES)?);
        hold(
            room,
            (owners * size_of::<Owner>() + xattrs * size_of::<Vec<Xattr>>()) as u64,
        )?;
        let reader = Self {
            kinds: section.column("kinds of entries")?,
            prefix_lengths: section.column("shared lengths of paths")?,
            suffix_lengths: section.column("own lengths of paths")?,
            suffixes: section.column("paths")?,
            owners: read_owners(section.column("owners and modes")?, owners)?,
            owner_numbers: section.column("numbers of owners")?,
            seconds: section.column("times")?,
            nanoseconds: section.column("nanoseconds")?,
            xattrs: read_xattrs(section.column("extended attributes")?, xattrs, room)?,
            xattr_numbers: section.column("numbers of extended attributes")?,
            sizes: section.column("sizes of files")?,
            extents: section.column("extents")?,
            link_lengths: section.column("lengths of link targets")?,
            links: section.column("link targets")?,
            devices: section.column("device numbers")?,
            last_path: Vec::new(),
            path_bytes: 0,
            xattr_bytes: 0,
            extent_count: 0,
            last_seconds: 0,
            next_data: 0,
        };
        section.finish()?;
        Ok((count, reader))
    }

    fn entry(&mut self) -> Result<Entry, DecodeError> {
        let path = self.path()?;
        let kind = self.kinds.byte()?;
        let kind = match kind & !EXPLICIT_EXTENTS {
            1 => self.file(kind & EXPLICIT_EXTENTS != 0)?,
            _ if kind & EXPLICIT_EXTENTS != 0 => {
                return Err(DecodeError::Unknown {
                    what: "kind of entry",
                    value: kind.into(),
                });
            }
            0 => EntryKind::Directory,
            2 => EntryKind::Symlink {
                target: self.link(MAX_SYMLINK)?,
            },
            3 => {
                let target = self.link(MAX_PATH)?;
                EntryKind::Hardlink {
                    target: LayerPath::from_normal_form(target)?,
                }
            }
            4 => self.device(|major, minor| EntryKind::CharDevice { major, minor })?,
            5 => self.device(|major, minor| EntryKind::BlockDevice { major, minor })?,
            6 => EntryKind::Fifo,
            7 => EntryKind::Whiteout,
            8 => EntryKind::Opaque,
            _ => {
                return Err(DecodeError::Unknown {
                    what: "kind of entry",
                    value: kind.into(),
                });
            }
        };
        let metadata = match kind {
            EntryKind::Whiteout | EntryKind::Opaque => Metadata::default(),
            _ => self.metadata()?,
        };
        Ok(Entry { path, metadata, kind })
    }

    fn path(&mut self) -> Result<LayerPath, DecodeError> {
        let shared = self.prefix_lengths.count(MAX_PATH as u64)?;
        let own = self.suffix_lengths.count(MAX_PATH as u64)?;
        if shared > self.last_path.len() {
            return Err(DecodeError::Truncated("a path's shared part"));
        }
        self.path_bytes += (shared + own) as u64;
        limit("the bytes of all paths", self.path_bytes, MAX_PATH_BYTES)?;
        self.last_path.truncate(shared);
        self.last_path.extend_from_slice(self.suffixes.bytes(own)?);
        Ok(LayerPath::from_normal_form(self.last_path.clone())?)
    }

    fn file(&mut self, explicit: bool) -> Result<EntryKind, DecodeError> {
        let size = self.sizes.number()?;
        let extents = match (explicit, size) {
            (true, _) => self.explicit_extents()?,
            (false, 0) => Vec::new(),
            (false, _) => vec![Extent {
                file_offset: 0,
                data_offset: self.next_data,
                length: size,
            }],
        };
        self.extent_count += extents.len() as u64;
        limit("extents", self.extent_count, MAX_EXTENTS)?;
        if let Some(last) = extents.last() {
            self.next_data = expected_data(last.data_offset, last.length);
        }
        Ok(EntryKind::File { size, extents })
    }

    fn explicit_extents(&mut self) -> Result<Vec<Extent>, DecodeError> {
        let count = self.extents.count(MAX_EXTENTS)?;
        let (mut file_end, mut data_end) = (0, self.next_data);
        let mut extents = Vec::new();
        for _ in 0..count {
            let mut pages = |expected: u64| {
                let found = self.extents.difference(expected / PAGE_SIZE)?;
                found.checked_mul(PAGE_SIZE).ok_or(DecodeError::Number("extents"))
            };
            let (file_offset, data_offset) = (pages(file_end)?, pages(data_end)?);
            let length = self.extents.number()?;
            extents.push(Extent {
                file_offset,
                data_offset,
                length,
            });
            file_end = expected_data(file_offset, length);
            data_end = expected_data(data_offset, length);
        }
        Ok(extents)
    }

    fn link(&mut self, limit: usize) -> Result<Vec<u8>, DecodeError> {
        let length = self.link_lengths.count(limit as u64)?;
        Ok(self.links.bytes(length)?.to_vec())
    }

    fn device(&mut self, make: impl Fn(u32, u32) -> EntryKind) -> Result<EntryKind, DecodeError> {
        let (major, minor) = (
            self.devices.count(u32::MAX.into())?,
            self.devices.count(u32::MAX.into())?,
        );
        Ok(make(major as u32, minor as u32))
    }

    fn metadata(&mut self) -> Result<Metadata, DecodeError> {
        let owner = self.owner_numbers.number()?;
        let &(mode, uid, gid) = pick(&self.owners, owner, "owner")?;
        self.last_seconds = self.seconds.difference(self.last_seconds as u64)? as i64;
        let mtime_nanoseconds = self.nanoseconds.count(999_999_999)? as u32;
        let xattrs = match self.xattr_numbers.number()? {
            0 => Vec::new(),
            number => {
                let set = pick(&self.xattrs, number - 1, "set of extended attributes")?;
                self.xattr_bytes += xattr_bytes(set);
                limit(
                    "the bytes of all extended attributes",
                    self.xattr_bytes,
                    MAX_XATTR_BYTES,
                )?;
                set.clone()
            }
        };
        Ok(Metadata {
            mode,
            uid,
            gid,
            mtime: self.last_seconds,
            mtime_nanoseconds,
            xattrs,
        })
    }

    fn finish(self) -> Result<(), DecodeError> {
        for column in [
            self.kinds,
            self.prefix_lengths,
            self.suffix_lengths,
            self.suffixes,
            self.owner_numbers,
            self.seconds,
            self.nanoseconds,
            self.xattr_numbers,
            self.sizes,
            self.extents,
            self.link_lengths,
            self.links,
            self.devices,
        ] {
            column.finish()?;
        }
        Ok(())
    }
}

fn pick<'t, T>(table: &'t [T], number: u64, what: &'static str) -> Result<&'t T, DecodeError> {
    usize::try_from(number)
        .ok()
        .and_then(|at| table.get(at))
        .ok_or(DecodeError::Unknown { what, value: number })
}

fn read_owners(mut column: Column<'_>, count: usize) -> Result<Vec<Owner>, DecodeError> {
    column.holds(count)?;
    let mut owners = Vec::with_capacity(count);
    for _ in 0..count {
        let mode = column.count(0o7777)? as u16;
        let uid = column.count(u32::MAX.into())? as u32;
        let gid = column.count(u32::MAX.into())? as u32;
        owners.push((mode, uid, gid));
    }
    column.finish()?;
    Ok(owners)
}

fn read_xattrs(
    mut column: Column<'_>,
    count: usize,
    room: &mut Room<'_>,
) -> Result<Vec<Vec<Xattr>>, DecodeError> {
    column.holds(count)?;
    let mut sets = Vec::with_capacity(count);
    let mut bytes = 0;
    for _ in 0..count {
        let mut set = Vec::new();
        // The least attribute takes three bytes: two lengths and one byte of name.
        for _ in 0..column.count(MAX_XATTR_SET as u64 / 3)? {
            let length = column.count(MAX_XATTR_NAME as u64)?;
            let name = column.bytes(length)?.to_vec();
            let length = column.count(MAX_XATTR_VALUE as u64)?;
            let value = column.bytes(length)?.to_vec();
            set.push(Xattr { name, value });
        }
        // Three bytes become an attribute of a hundred. Each set is of some entry, so the limit of entries holds for sets.
        let more = xattr_bytes(&set);
        bytes += more;
        limit(
            "the bytes of all sets of extended attributes",
            bytes,
            MAX_XATTR_BYTES,
        )?;
        hold(room, more)?;
        sets.push(set);
    }
    column.finish()?;
    Ok(sets)
}
