//! The JSON that eStargz and zstd:chunked share: a version and a list of entries.
//!
//! The list is not collected: each entry goes to the builder as it is read, so that memory is bounded by what the
//! builder accepts.

use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::entries::IndexBuilder;
use super::entry::TocEntry;
use super::error::TocError;

/// Reads a table of contents into `builder`.
pub(super) fn read_table(json: &[u8], builder: &mut IndexBuilder) -> Result<(), TocError> {
    let mut table = Table {
        builder,
        version: None,
        seen: false,
        refused: None,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let read = TableSeed(&mut table).deserialize(&mut deserializer);
    if let Some(refused) = table.refused {
        return Err(refused);
    }
    read?;
    deserializer.end()?;
    match table.version {
        Some(1) => Ok(()),
        version => Err(TocError::Version(version.unwrap_or(0))),
    }
}

struct Table<'a> {
    builder: &'a mut IndexBuilder,
    version: Option<i64>,
    /// Whether there was a list already.
    seen: bool,
    /// Why the builder refused an entry; serde carries only text.
    refused: Option<TocError>,
}

struct TableSeed<'s, 'a>(&'s mut Table<'a>);

impl<'de> DeserializeSeed<'de> for TableSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TableSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of contents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "version" => self.0.version = Some(map.next_value()?),
                "entries" if self.0.seen => return Err(de::Error::duplicate_field("entries")),
                "entries" => {
                    self.0.seen = true;
                    map.next_value_seed(EntriesSeed(self.0))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct EntriesSeed<'s, 'a>(&'s mut Table<'a>);

impl<'de> DeserializeSeed<'de> for EntriesSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EntriesSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    /// Go writes an empty list as null.
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<TocEntry>()? {
            if let Err(refused) = self.0.builder.push(&entry) {
                self.0.refused = Some(refused);
                return Err(de::Error::custom("an entry is refused"));
            }
        }
        Ok(())
    }
}
