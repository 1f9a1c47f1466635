//! Tar files of every shape that layers come in, and of shapes that they never should.
//!
//! [`TarBuilder`] appends entries to any writer. An entry is described by a [`Header`]; the [`Dialect`] says how
//! what does not fit the 1988 header is written: as PAX records, or as GNU tar does. Nothing is checked, so that
//! hostile archives can be built: [`TarBuilder::raw`] takes any bytes, [`Header::raw_block`] gives a header block
//! to spoil. Same calls, same bytes. The first write error is kept and returned by [`TarBuilder::finish`].

mod header;
mod sparse;

use std::io::{self, Read, Write};

pub use header::{BLOCK, Dialect, Header, Kind, set_checksum};
pub use sparse::SparseFormat;

/// Appends entries to a tar file.
pub struct TarBuilder<W> {
    out: W,
    dialect: Dialect,
    failure: Option<io::Error>,
}

impl Default for TarBuilder<Vec<u8>> {
    fn default() -> Self {
        Self::new()
    }
}

impl TarBuilder<Vec<u8>> {
    /// An archive in memory.
    pub fn new() -> Self {
        Self::to_writer(Vec::new())
    }

    /// The finished archive, with its two closing zero blocks.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.raw(&[0; 2 * BLOCK]);
        self.out
    }

    /// The archive as it stands, without closing blocks.
    pub fn into_unfinished_bytes(self) -> Vec<u8> {
        self.out
    }
}

impl<W: Write> TarBuilder<W> {
    /// An archive that is written to `out`.
    pub fn to_writer(out: W) -> Self {
        Self {
            out,
            dialect: Dialect::Pax,
            failure: None,
        }
    }

    /// How later entries write what does not fit the plain header.
    pub fn dialect(&mut self, dialect: Dialect) -> &mut Self {
        self.dialect = dialect;
        self
    }

    /// Appends an entry of any kind without contents.
    pub fn entry(&mut self, header: &Header) -> &mut Self {
        let blocks = header.encode(self.dialect);
        self.raw(&blocks)
    }

    /// Appends a regular file; the header's size is taken from `contents`.
    pub fn file_with(&mut self, header: &Header, contents: &[u8]) -> &mut Self {
        let header = header.clone().size(contents.len() as u64);
        self.entry(&header).raw(contents).pad(contents.len() as u64)
    }

    /// Appends a regular file of `size` bytes that are read from `contents`.
    pub fn file_from(&mut self, header: &Header, size: u64, contents: impl Read) -> &mut Self {
        self.entry(&header.clone().size(size));
        if self.failure.is_none() {
            match io::copy(&mut contents.take(size), &mut self.out) {
                Ok(copied) if copied == size => {}
                Ok(copied) => {
                    let text = format!("file contents ended after {copied} of {size} bytes");
                    self.failure = Some(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                Err(error) => self.failure = Some(error),
            }
        }
        self.pad(size)
    }

    /// Appends a regular file, mode 0644.
    pub fn file(&mut self, path: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) -> &mut Self {
        self.file_with(&Header::new(path, Kind::File), contents.as_ref())
    }

    /// Appends a directory, mode 0755.
    pub fn directory(&mut self, path: impl AsRef<[u8]>) -> &mut Self {
        self.entry(&Header::new(path, Kind::Directory))
    }

    /// Appends a symbolic link.
    pub fn symlink(&mut self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> &mut Self {
        self.entry(&Header::new(path, Kind::Symlink).link(target))
    }

    /// Appends a hard link to `target`.
    pub fn hardlink(&mut self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> &mut Self {
        self.entry(&Header::new(path, Kind::Hardlink).link(target))
    }

    /// Appends the whiteout that removes `path` from the lower layers.
    pub fn whiteout(&mut self, path: &str) -> &mut Self {
        let marker = match path.rsplit_once('/') {
            Some((parent, name)) => format!("{parent}/.wh.{name}"),
            None => format!(".wh.{path}"),
        };
        self.file(marker, b"")
    }

    /// Appends the marker that removes all that lower layers have in `directory`.
    pub fn opaque(&mut self, directory: &str) -> &mut Self {
        self.file(format!("{directory}/.wh..wh..opq"), b"")
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        if self.failure.is_none()
            && let Err(error) = self.out.write_all(bytes)
        {
            self.failure = Some(error);
        }
        self
    }

    /// Appends the zeros that fill up the last block after `length` bytes of contents.
    pub fn pad(&mut self, length: u64) -> &mut Self {
        let zeros = [0; BLOCK];
        let used = (length % BLOCK as u64) as usize;
        if used > 0 { self.raw(&zeros[used..]) } else { self }
    }

    /// Writes the two closing zero blocks and gives the writer back.
    ///
    /// # Errors
    /// The first error that any write of this builder met.
    pub fn finish(mut self) -> io::Result<W> {
        self.raw(&[0; 2 * BLOCK]);
        match self.failure {
            Some(error) => Err(error),
            None => Ok(self.out),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// GNU tar's listing of an archive.
    fn listing(bytes: &[u8]) -> String {
        let mut tar = Command::new("tar")
            .args([
                "--list",
                "--verbose",
                "--numeric-owner",
                "--full-time",
                "--utc",
                "--quoting-style=c",
            ])
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn gnu_tar_reads_what_was_meant_in_each_dialect() {
        let long = "d/".repeat(80) + "name";
        for dialect in [Dialect::Pax, Dialect::Gnu] {
            let mut tar = TarBuilder::new();
            tar.dialect(dialect)
                .directory("etc/")
                .file_with(
                    &Header::new("etc/x", Kind::File).mode(0o4755).owner(3_000_000, 7),
                    b"hello",
                )
                .file(&long, b"far away")
                .symlink("link", "t".repeat(150))
                .hardlink("hard", "etc/x")
                .entry(&Header::new("null", Kind::CharDevice).device(1, 3))
                .file_with(&Header::new("old", Kind::File).modified(-2, 0), b"");
            let listing = listing(&tar.into_bytes());
            let lines: Vec<&str> = listing.lines().collect();
            assert_eq!(lines.len(), 7, "{listing}");
            assert!(lines[1].starts_with("-rwsr-xr-x 3000000/7"), "{listing}");
            assert!(lines[2].ends_with(&format!("\"{long}\"")), "{listing}");
            assert!(
                lines[3].ends_with(&format!("-> \"{}\"", "t".repeat(150))),
                "{listing}"
            );
            assert!(lines[4].contains("link to \"etc/x\""), "{listing}");
            assert!(
                lines[5].starts_with("crw") && lines[5].contains("1,3"),
                "{listing}"
            );
            assert!(lines[6].contains("1969-12-31 23:59:58"), "{listing}");
        }
    }

    #[test]
    fn gnu_tar_restores_each_sparse_format() {
        let data: &[(u64, &[u8])] = &[(4096, &[b'1'; 1024]), (100_352, b"two")];
        let formats = [
            SparseFormat::OldGnu,
            SparseFormat::Pax00,
            SparseFormat::Pax01,
            SparseFormat::Pax10,
        ];
        for format in formats {
            let mut tar = TarBuilder::new();
            tar.sparse(&Header::new("hole", Kind::File), format, 200_000, data)
                .file("after", b"!");
            let mut gnu = Command::new("tar")
                .args(["--extract", "--to-stdout", "hole"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            gnu.stdin.take().unwrap().write_all(&tar.into_bytes()).unwrap();
            let output = gnu.wait_with_output().unwrap();
            let mut want = vec![0; 200_000];
            want[4096..5120].fill(b'1');
            want[100_352..100_355].copy_from_slice(b"two");
            assert!(output.status.success() && output.stdout == want, "{format:?}");
        }
    }
}
