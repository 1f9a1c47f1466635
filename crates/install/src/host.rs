//! Looks at a host before an installation.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml_edit::DocumentMut;
use xebec_protocol::failure::{Failure, FailureKind};

use crate::Options;
use crate::plan::PIECE;

/// Where the service manager keeps units that a package brought.
const PACKAGED_UNITS: [&str; 2] = ["usr/lib/systemd/system", "lib/systemd/system"];

impl Options {
    /// Whether the host's service manager is systemd, and runs.
    pub(crate) fn has_systemd(&self) -> bool {
        self.here(Path::new("/run/systemd/system")).is_dir()
    }

    /// Whether a package brought the units.
    pub(crate) fn is_packaged(&self) -> bool {
        PACKAGED_UNITS
            .iter()
            .any(|folder| self.sysroot.join(folder).join("xebec.service").is_file())
    }

    /// Whether this is the program that a package brought.
    pub(crate) fn is_program_packaged(&self) -> bool {
        self.sysroot == Path::new("/") && self.program == Path::new(crate::PACKAGED_PROGRAM)
    }

    /// Where what was changed is kept.
    pub(crate) fn record_file(&self) -> PathBuf {
        self.root.join("installed.json")
    }

    /// The major version of the host's containerd, if it has one. The program is not run: it may be another machine's. One of
    /// version 2 is of another Go module, whose name is in it.
    pub(crate) fn containerd_version(&self) -> Option<u32> {
        let places = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];
        let programs = places.map(|folder| self.here(&Path::new(folder).join("containerd")));
        let program = programs.iter().find_map(|program| File::open(program).ok())?;
        let is_second = contains(program, b"github.com/containerd/containerd/v2/").ok()?;
        Some(if is_second { 2 } else { 1 })
    }

    /// Reads a TOML file of the host; an empty one when it is not there.
    pub(crate) fn read_toml(&self, path: &Path) -> Result<(String, DocumentMut), Failure> {
        let text = match std::fs::read_to_string(self.here(path)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::host(format!("read {}", path.display()), error)),
        };
        let document = text.parse::<DocumentMut>().map_err(|error| {
            let hint = match text.contains("{{") {
                true => ": it is a template; add what docs/containerd.md says by hand",
                false => "",
            };
            let error = error.to_string();
            let message = format!("{} is not TOML{hint}: {}", path.display(), error.trim_end());
            Failure::new(FailureKind::Usage, message)
        })?;
        Ok((text, document))
    }
}

/// Whether a file contains these bytes. It is read in pieces: a program has a hundred megabytes, and what installs Xebec on a node has
/// little memory.
fn contains(mut file: File, wanted: &[u8]) -> io::Result<bool> {
    let (mut seen, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        let length = match file.read(&mut piece) {
            Ok(0) => return Ok(false),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        seen.extend_from_slice(piece.get(..length).unwrap_or_default());
        if seen.windows(wanted.len()).any(|window| window == wanted) {
            return Ok(true);
        }
        // The bytes may begin in this piece and end in the next.
        seen.drain(..seen.len().saturating_sub(wanted.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_where_pieces_meet() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        for before in [0, 1, PIECE - 7, PIECE - 1, PIECE, 3 * PIECE + 5] {
            let mut bytes = vec![b'w'; before];
            bytes.extend_from_slice(b"word of it");
            std::fs::write(&path, &bytes).unwrap();
            assert!(
                contains(File::open(&path).unwrap(), b"word of it").unwrap(),
                "{before}"
            );
            assert!(
                !contains(File::open(&path).unwrap(), b"word of it.").unwrap(),
                "{before}"
            );
        }
    }
}
