//! Sparse files in the four ways in which GNU tar has written them (GNU tar manual, "Storing Sparse Files").

use std::io::Write;

use super::header::{encode_records, prefixed};
use super::{BLOCK, Dialect, Header, Kind, TarBuilder, set_checksum};

/// How a sparse file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparseFormat {
    /// Type `S`, the map in the header and in blocks after it.
    OldGnu,
    /// PAX records `GNU.sparse.offset` and `GNU.sparse.numbytes`, once for each run.
    Pax00,
    /// One PAX record `GNU.sparse.map`.
    Pax01,
    /// The map as text before the contents.
    Pax10,
}

impl<W: Write> TarBuilder<W> {
    /// Appends a sparse file of `size` bytes with data at the given offsets, ascending and not overlapping.
    /// The header's path must be at most 100 bytes. GNU tar cuts runs at blocks of 512 bytes: it reads back
    /// only what has every run but the last start and end there.
    pub fn sparse(
        &mut self,
        header: &Header,
        format: SparseFormat,
        size: u64,
        runs: &[(u64, &[u8])],
    ) -> &mut Self {
        // A file that ends in a hole closes its map with an empty run at its end.
        let mut runs = runs.to_vec();
        if runs
            .last()
            .is_none_or(|(at, data)| at + (data.len() as u64) < size)
        {
            runs.push((size, &[]));
        }
        let runs = &runs;
        match format {
            SparseFormat::OldGnu => self.sparse_old_gnu(header, size, runs),
            SparseFormat::Pax00 | SparseFormat::Pax01 => self.sparse_in_records(header, format, size, runs),
            SparseFormat::Pax10 => self.sparse_in_contents(header, size, runs),
        }
    }

    fn sparse_old_gnu(&mut self, header: &Header, size: u64, runs: &[(u64, &[u8])]) -> &mut Self {
        let stored: u64 = runs.iter().map(|(_, data)| data.len() as u64).sum();
        let sparse = Header {
            kind: Kind::Other(b'S'),
            ..header.clone().size(stored)
        };
        let mut block = sparse.raw_block(Dialect::Gnu);
        let field = |value: u64| format!("{value:011o}\0").into_bytes();
        let pairs: Vec<u8> = runs
            .iter()
            .flat_map(|(at, data)| [field(*at), field(data.len() as u64)].concat())
            .collect();
        let (in_header, rest) = pairs.split_at(pairs.len().min(4 * 24));
        block[386..386 + in_header.len()].copy_from_slice(in_header);
        block[482] = u8::from(!rest.is_empty());
        block[483..495].copy_from_slice(&field(size));
        set_checksum(&mut block);
        self.raw(&block);
        let mut chunks = rest.chunks(21 * 24).peekable();
        while let Some(chunk) = chunks.next() {
            let mut extension = [0; BLOCK];
            extension[..chunk.len()].copy_from_slice(chunk);
            extension[504] = u8::from(chunks.peek().is_some());
            self.raw(&extension);
        }
        self.sparse_data(runs).pad(stored)
    }

    fn sparse_in_records(
        &mut self,
        header: &Header,
        format: SparseFormat,
        size: u64,
        runs: &[(u64, &[u8])],
    ) -> &mut Self {
        let stored: u64 = runs.iter().map(|(_, data)| data.len() as u64).sum();
        let mut records = vec![
            record("GNU.sparse.size", size),
            record("GNU.sparse.numblocks", runs.len() as u64),
        ];
        if format == SparseFormat::Pax00 {
            for (at, data) in runs {
                records.push(record("GNU.sparse.offset", *at));
                records.push(record("GNU.sparse.numbytes", data.len() as u64));
            }
        } else {
            let map: Vec<String> = runs
                .iter()
                .map(|(at, data)| format!("{at},{}", data.len()))
                .collect();
            records.push((b"GNU.sparse.map".to_vec(), map.join(",").into_bytes()));
            records.push((b"GNU.sparse.name".to_vec(), header.path.clone()));
        }
        self.raw(&prefixed(b'x', b"PaxHeaders/sparse", &encode_records(&records)));
        self.raw(&header.clone().size(stored).raw_block(Dialect::Pax));
        self.sparse_data(runs).pad(stored)
    }

    fn sparse_in_contents(&mut self, header: &Header, size: u64, runs: &[(u64, &[u8])]) -> &mut Self {
        let mut map = format!("{}\n", runs.len());
        for (at, data) in runs {
            map += &format!("{at}\n{}\n", data.len());
        }
        let mut map = map.into_bytes();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        let stored = map.len() as u64 + runs.iter().map(|(_, data)| data.len() as u64).sum::<u64>();
        let records = [
            record("GNU.sparse.major", 1),
            record("GNU.sparse.minor", 0),
            (b"GNU.sparse.name".to_vec(), header.path.clone()),
            record("GNU.sparse.realsize", size),
        ];
        self.raw(&prefixed(b'x', b"PaxHeaders/sparse", &encode_records(&records)));
        let stand_in = Header {
            path: b"GNUSparseFile.0/file".to_vec(),
            ..header.clone()
        };
        self.raw(&stand_in.size(stored).raw_block(Dialect::Pax));
        self.raw(&map).sparse_data(runs).pad(stored)
    }

    fn sparse_data(&mut self, runs: &[(u64, &[u8])]) -> &mut Self {
        for (_, data) in runs {
            self.raw(data);
        }
        self
    }
}

fn record(key: &str, value: u64) -> (Vec<u8>, Vec<u8>) {
    (key.as_bytes().to_vec(), value.to_string().into_bytes())
}
