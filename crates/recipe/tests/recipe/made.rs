//! Bytes for tests, the same each time.

use xebec_recipe::{Blob, Cutter, Hint, Limits, Piece, Recipe, RecipeBuilder, Splitter};

/// A piece that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owned {
    Inline(Vec<u8>),
    Zeros(u64),
    Chunk(Vec<u8>, Hint),
}

/// Numbers that look random.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| (self.next() >> 7) as u8).collect()
    }

    /// Bytes that compress as sources do.
    pub(crate) fn text(&mut self, length: usize) -> Vec<u8> {
        let words = [
            "let ", "chunk", " = ", "frame", ";\n", "pack", "(", ")", "index", "recipe ",
        ];
        let mut text = Vec::new();
        while text.len() < length {
            text.extend_from_slice(words[self.next() as usize % words.len()].as_bytes());
        }
        text.truncate(length);
        text
    }
}

/// The pieces of bytes that come in pieces of `step`. Inline ones that follow each other are one.
pub(crate) fn split(plain: &[u8], cutter: Cutter, step: usize) -> Vec<Owned> {
    let mut pieces = Vec::new();
    let mut sink = |piece: Piece<'_>| match (pieces.last_mut(), piece) {
        (Some(Owned::Inline(before)), Piece::Inline(bytes)) => before.extend_from_slice(bytes),
        (_, Piece::Inline(bytes)) => pieces.push(Owned::Inline(bytes.to_vec())),
        (_, Piece::Zeros(length)) => pieces.push(Owned::Zeros(length)),
        (_, Piece::Chunk { bytes, hint }) => {
            pieces.push(Owned::Chunk(bytes.to_vec(), hint.clone()));
        }
    };
    let mut splitter = Splitter::new(cutter);
    for piece in plain.chunks(step) {
        splitter.write(piece, &mut sink);
    }
    splitter.finish(&mut sink);
    pieces
}

pub(crate) fn join(pieces: &[Owned]) -> Vec<u8> {
    let mut plain = Vec::new();
    for piece in pieces {
        match piece {
            Owned::Inline(bytes) | Owned::Chunk(bytes, _) => plain.extend_from_slice(bytes),
            Owned::Zeros(length) => plain.resize(plain.len() + *length as usize, 0),
        }
    }
    plain
}

/// The recipe of bytes.
pub(crate) fn recipe(plain: &[u8], cutter: Cutter) -> Recipe {
    let mut builder = RecipeBuilder::new(Limits::default());
    let mut sink = |piece: Piece<'_>| {
        builder.add(piece).unwrap();
    };
    let mut splitter = Splitter::new(cutter);
    splitter.write(plain, &mut sink);
    splitter.finish(&mut sink);
    let blob = Blob {
        digest: format!("sha256:{}", "ab".repeat(32)),
        size: 4711,
    };
    builder.finish(blob, b"how it is compressed".to_vec()).unwrap()
}

/// Ends with two blocks of zeros, and as many more as make it a multiple of 10 KiB, as tar programs do.
pub(crate) fn tar(add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    add(&mut builder);
    let mut bytes = builder.into_inner().unwrap();
    bytes.resize(bytes.len().next_multiple_of(10 << 10), 0);
    bytes
}

/// A header of the GNU kind.
pub(crate) fn header(path: &str, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_path(path).unwrap();
    header.set_size(size as u64);
    header.set_mode(0o644);
    header.set_mtime(1_700_000_000);
    header.set_cksum();
    header
}

/// Appends a file.
pub(crate) fn file(builder: &mut tar::Builder<Vec<u8>>, path: &str, contents: &[u8]) {
    builder.append(&header(path, contents.len()), contents).unwrap();
}

/// A tar stream with a bit of everything, some hundred KB.
pub(crate) fn tree() -> Vec<u8> {
    let mut numbers = Numbers(3);
    tar(|builder| {
        let mut directory = header("usr/", 0);
        directory.set_entry_type(tar::EntryType::Directory);
        directory.set_cksum();
        builder.append(&directory, &[][..]).unwrap();
        for number in 0..60 {
            let length = numbers.next() as usize % 9000;
            let contents = numbers.text(length);
            file(
                builder,
                &format!("usr/share/doc/package-{number}/copyright"),
                &contents,
            );
        }
        file(builder, "usr/empty", b"");
        file(builder, "usr/short", b"short");
        file(builder, "usr/again", &Numbers(3).text(777));
        file(builder, "usr/and-again", &Numbers(3).text(777));
        file(builder, "usr/zeros", &[0; 70_000]);
        let mut link = header("usr/link", 0);
        link.set_entry_type(tar::EntryType::Symlink);
        builder.append_link(&mut link, "usr/link", "a/target").unwrap();
        let long = "long/".repeat(40) + "name.txt";
        let contents = numbers.text(3000);
        builder
            .append_data(&mut header("x", 3000), &long, &contents[..])
            .unwrap();
        builder
            .append_pax_extensions([("mtime", &b"1700000000.123456789"[..])])
            .unwrap();
        file(builder, "usr/with-records", &numbers.text(1000));
    })
}
