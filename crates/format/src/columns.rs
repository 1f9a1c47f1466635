//! Columns: the same field of all rows, side by side, so that it compresses well. A section's plain bytes are a few
//! leading numbers and then columns, each preceded by its length. Numbers are LEB128 variable-length integers;
//! signed ones are zigzag-coded first.

/// Why a column cannot be read. The message follows the name of the structure that holds the column.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ColumnError {
    /// The bytes end inside something.
    #[error("ends inside {0}")]
    Truncated(&'static str),
    /// Bytes are left over.
    #[error("has bytes left over after {0}")]
    Trailing(&'static str),
    /// A variable-length number is longer than 64 bits.
    #[error("has a number over 64 bits in {0}")]
    Number(&'static str),
    /// A count or length is over its limit.
    #[error("declares {value} for {what}, over the limit of {limit}")]
    Limit {
        /// The things that are counted, in words.
        what: &'static str,
        /// The value declared.
        value: u64,
        /// Its limit.
        limit: u64,
    },
}

/// A column that is being written.
#[derive(Default)]
pub(crate) struct ColumnWriter(Vec<u8>);

impl ColumnWriter {
    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// The difference from what a reader expects here; wraps, so that every pair of values has one.
    pub(crate) fn difference(&mut self, value: u64, expected: u64) {
        let signed = value.wrapping_sub(expected) as i64;
        self.number(((signed << 1) ^ (signed >> 63)) as u64);
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
    }
}

/// Puts columns behind `leading` as a section's plain bytes.
pub(crate) fn join(leading: &[u64], columns: &[ColumnWriter]) -> Vec<u8> {
    let mut out = ColumnWriter::default();
    for &number in leading {
        out.number(number);
    }
    for column in columns {
        out.number(column.0.len() as u64);
        out.bytes(&column.0);
    }
    out.0
}

/// A column that is being read.
#[derive(Clone, Copy)]
pub(crate) struct Column<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Column<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, ColumnError> {
        let (&first, rest) = self.rest.split_first().ok_or(ColumnError::Truncated(self.what))?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], ColumnError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(ColumnError::Truncated(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn number(&mut self) -> Result<u64, ColumnError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ColumnError::Number(self.what))
    }

    pub(crate) fn difference(&mut self, expected: u64) -> Result<u64, ColumnError> {
        let coded = self.number()?;
        let signed = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        Ok(expected.wrapping_add(signed as u64))
    }

    /// A number that must not exceed `limit`; it then fits a `usize`, as every limit does.
    pub(crate) fn count(&mut self, limit: u64) -> Result<usize, ColumnError> {
        let value = self.number()?;
        if value > limit {
            return Err(ColumnError::Limit {
                what: self.what,
                value,
                limit,
            });
        }
        Ok(value as usize)
    }

    /// That a column has a byte or more for each of so many rows, before room is made for them.
    pub(crate) fn holds(&self, rows: usize) -> Result<(), ColumnError> {
        match self.rest.len() >= rows {
            true => Ok(()),
            false => Err(ColumnError::Truncated(self.what)),
        }
    }

    /// The next column in a section.
    pub(crate) fn column(&mut self, what: &'static str) -> Result<Column<'a>, ColumnError> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| ColumnError::Truncated(what))?;
        let bytes = self.bytes(length).map_err(|_| ColumnError::Truncated(what))?;
        Ok(Column::new(bytes, what))
    }

    /// Every byte must have been read: one meaning, one encoding.
    pub(crate) fn finish(self) -> Result<(), ColumnError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(ColumnError::Trailing(self.what))
        }
    }
}
