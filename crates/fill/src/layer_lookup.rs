//! Which layer a file of the guarded mount belongs to, and which layers anybody can be reading: the questions behind an
//! event whose file no view is known to use.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use tracing::error;

use xebec_cache::store::LayerKey;
use xebec_kernel::fanotify::Denial;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::lease::Lease;
use xebec_protocol::failure::Failure;

use crate::events::{Answer, Event};
use crate::fill_service::FillService;
use crate::served::ServedLayer;

/// Name of a layer's data file.
const DATA: &str = "data";

impl FillService {
    /// The layer whose data file this is, if it is served.
    pub(crate) fn known(&self, identity: FileIdentity) -> Option<Arc<ServedLayer>> {
        let layers = self.layers.read();
        layers.get(&identity).cloned()
    }

    /// An event of a file that is no served layer's data. The thread that reads events answers it where the file's name
    /// says what it is. Else the file is looked for elsewhere, one at a time: that may take a walk through the whole cache, and
    /// a process that reads strange files decides how often.
    pub(crate) fn handle_unknown(
        self: Arc<Self>,
        identity: FileIdentity,
        event: Event,
        range: Range<u64>,
        answer: Answer,
    ) {
        let name = answer.path().and_then(|path| Name::of(&path));
        // Other files of a layer's folder (`index`, `present`) are never lazy.
        if let Some(Name { key, file }) = &name
            && file != DATA
            && FileIdentity::at(&self.store.folder(*key).join(file)).ok() == Some(identity)
        {
            return answer.allow();
        }
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            // It is never closed.
            let _turn = self.identifying.clone().acquire_owned().await;
            let (this, key) = (self.clone(), name.map(|name| name.key));
            let found = tokio::task::spawn_blocking(move || this.identify(identity, key)).await;
            match found {
                Ok(Found::Layer(served)) => self.handle_known(&served, &event, range, answer),
                Ok(Found::SideFile) => answer.allow(),
                Ok(Found::Nothing) => {
                    // A data file that is not one of the cache, or no more, is filled by nobody: its reader
                    // would see zeros.
                    if let Some(unsaid) = self.strangers.say() {
                        error!(
                            unsaid,
                            "a file of the guarded mount (device {:#x}, inode {}) is no layer's data: its reader gets EIO. \
                             It was removed or replaced by hand; mount the image again",
                            identity.device, identity.inode
                        );
                    }
                    answer.deny(Denial::Io);
                }
                Err(error) => {
                    error!("a reader gets EIO: cannot look up the file that it reads: {error}");
                    answer.deny(Denial::Io);
                }
            }
        });
    }

    /// Finds out the kind of a file that no view is known to use. A layer's data (of a view whose record was lost, or read by hand)
    /// is served from here on. `likely` is where to look first.
    fn identify(&self, identity: FileIdentity, likely: Option<LayerKey>) -> Found {
        // Another reader may have come first.
        if let Some(served) = self.known(identity) {
            return Found::Layer(served);
        }
        let is_it = |key: &LayerKey| FileIdentity::at(&self.store.data_path(*key)).ok() == Some(identity);
        let keys = || self.store.list().unwrap_or_default().into_iter();
        if let Some(key) = likely.into_iter().chain(keys()).find(is_it) {
            return match self.serve(key, None) {
                Ok(served) => Found::Layer(served),
                Err(error) => {
                    error!("{error}");
                    Found::Nothing
                }
            };
        }
        let folders = keys().map(|key| self.store.folder(key));
        let mut files = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        let is_side_file = |entry: std::fs::DirEntry| {
            entry.file_name() != DATA && FileIdentity::at(&entry.path()).ok() == Some(identity)
        };
        match files.any(is_side_file) {
            true => Found::SideFile,
            false => Found::Nothing,
        }
    }

    /// Layers that are not served, not complete, and still open somewhere: by a view that was unmounted under its
    /// readers, or whose record was lost.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn read_unserved(&self) -> Result<Vec<LayerKey>, Failure> {
        let mut read = Vec::new();
        for key in self.store.list()? {
            if self.find(key).is_none() && self.is_open(key)? {
                read.push(key);
            }
        }
        Ok(read)
    }

    /// Whether anybody has the data of an incomplete layer open: a view, a reader, or this process, which serves it.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn is_open(&self, key: LayerKey) -> Result<bool, Failure> {
        if self.store.is_complete(key) {
            return Ok(false);
        }
        let path = self.store.data_path(key);
        let told = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .and_then(|data| Ok(Lease::take(data.as_fd())?.is_none()));
        match told {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            told => {
                told.map_err(|error| Failure::host(format!("find the layer of {}", path.display()), error))
            }
        }
    }

    /// Every layer that an event of an unknown file can be of.
    pub(crate) fn candidates(&self) -> Result<Vec<Arc<ServedLayer>>, Failure> {
        for key in self.read_unserved()? {
            self.serve(key, None)?;
        }
        Ok(self.all())
    }
}

/// The kind of a strange file.
enum Found {
    Layer(Arc<ServedLayer>),
    SideFile,
    Nothing,
}

/// The names in a path of a cache file. Only names are looked at; a caller that relies on it compares the file's identity.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    key: LayerKey,
    file: OsString,
}

impl Name {
    /// The last three parts of a path are a file's layer, its index, and its own name, wherever the cache is mounted.
    fn of(path: &Path) -> Option<Self> {
        let digest = |name: &OsStr| format!("sha256:{}", name.to_str()?).parse().ok();
        let folder = path.parent()?;
        let index = digest(folder.file_name()?)?;
        let layer = digest(folder.parent()?.file_name()?)?;
        Some(Self {
            key: LayerKey { layer, index },
            file: path.file_name()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::digest::Digest;

    use super::*;

    #[test]
    fn a_path_names_a_layer_wherever_the_cache_is_mounted() {
        let key = LayerKey {
            layer: Digest::of(b"layer"),
            index: Digest::of(b"index"),
        };
        let file = OsString::from("present");
        let expected = Some(Name { key, file });
        for mount in ["/", "/run/xebec/guarded", "/elsewhere"] {
            let path = Path::new(mount).join(key.folder());
            assert_eq!(Name::of(&path.join("present")), expected);
            assert_eq!(Name::of(&path), None);
        }
        let gone = Path::new("/guarded").join(key.folder()).join("data (deleted)");
        assert!(Name::of(&gone).is_some_and(|name| name.file != DATA));
    }
}
