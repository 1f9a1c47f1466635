//! What is found on a host.

use std::path::{Path, PathBuf};

use toml_edit::DocumentMut;
use xebec_protocol::failure::{Failure, FailureKind};

use crate::Options;

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
        let bytes = programs.iter().find_map(|program| std::fs::read(program).ok())?;
        let module = b"github.com/containerd/containerd/v2/";
        let is_second = bytes.windows(module.len()).any(|window| window == module);
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
