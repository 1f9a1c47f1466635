//! The file `mode` in the root directory, by which the registry is made read-only, or taken out of service, while it serves:
//! `echo "read-only: the disk is being replaced" > ROOT/mode`. Removing the file ends it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use xebec_policy::mode::{Mode, Serving};

/// The file is looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The largest file that is read, in bytes. Only its first line counts.
const MAX_SIZE: u64 = 4096;

/// How the registry serves now. Clones look at the same file together.
#[derive(Clone, Debug, Default)]
pub struct ModeFile {
    path: Option<PathBuf>,
    configured: Mode,
    last: Arc<Mutex<Option<(Instant, Mode)>>>,
}

impl ModeFile {
    /// The mode of the configuration, and that of the file in its place where there is one.
    pub fn new(path: PathBuf, configured: Mode) -> Self {
        Self {
            path: Some(path),
            configured,
            last: Arc::default(),
        }
    }

    /// Whether anything may be written now.
    pub fn is_normal(&self) -> bool {
        self.now().serving == Serving::Normal
    }

    /// The mode of now, or of a second ago.
    pub fn now(&self) -> Mode {
        let Some(path) = &self.path else {
            return self.configured.clone();
        };
        let mut last = self.last.lock();
        if let Some((looked, mode)) = &*last
            && looked.elapsed() < LOOK_EVERY
        {
            return mode.clone();
        }
        let before = last.take().map(|(_, mode)| mode);
        let mode = match xebec_kernel::file::read_limited(path, MAX_SIZE) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.configured.clone(),
            read => match read.map_err(|error| error.to_string()).and_then(|bytes| {
                Mode::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string())
            }) {
                Ok(mode) => mode,
                Err(error) => {
                    // An operator wrote it on purpose. Text that is not understood keeps the mode as it was.
                    tracing::error!("the file {} is not understood: {error}", path.display());
                    before.clone().unwrap_or_else(|| self.configured.clone())
                }
            },
        };
        if before.as_ref().is_some_and(|before| *before != mode) {
            tracing::warn!(serving = ?mode.serving, reason = mode.reason, "the registry's mode has changed");
        }
        *last = Some((Instant::now(), mode.clone()));
        mode
    }
}
