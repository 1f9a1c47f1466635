//! Where uploads of committed layers go on that were stopped: a file for each layer, beside the blobs. What is in it is a hint; a registry
//! that no longer has the upload gets the layer anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xebec_format::digest::Digest;
use xebec_kernel::file::{read_limited, write_privately};

/// Uploads of one layer that are kept, and bytes of such a file.
const MOST: usize = 16;
const MOST_BYTES: u64 = 256 << 10;

/// The uploads of committed layers.
#[derive(Clone, Debug)]
pub struct KeptUploads {
    directory: PathBuf,
}

impl KeptUploads {
    /// Those in `directory`, which need not exist.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where the upload of a layer to a repository goes on.
    pub fn place(&self, layer: Digest, repository: &str) -> Option<String> {
        read(&self.file(layer)).remove(repository)
    }

    /// Notes where it goes on; `None` if it is over. The note is there whole or not at all, also after a kill.
    ///
    /// # Errors
    /// I/O errors: then the upload begins anew if it is stopped.
    pub fn note(&self, layer: Digest, repository: &str, place: Option<&str>) -> io::Result<()> {
        let file = self.file(layer);
        let mut places = read(&file);
        match place {
            Some(place) => places.insert(repository.to_owned(), place.to_owned()),
            None => places.remove(repository),
        };
        while places.len() > MOST {
            let other = places.keys().find(|other| *other != repository).cloned();
            let _ = other.and_then(|other| places.remove(&other));
        }
        if places.is_empty() {
            return match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        fs::create_dir_all(&self.directory)?;
        write_privately(&file, &serde_json::to_vec(&places)?)
    }

    /// Removes the notes of layers that are not kept any more.
    pub(crate) fn tidy(&self, is_kept: &dyn Fn(&str) -> bool) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let layer = name.to_str().and_then(|name| name.strip_suffix(".json"));
            if layer.is_some_and(|layer| !is_kept(layer)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn file(&self, layer: Digest) -> PathBuf {
        self.directory.join(format!("{}.json", layer.hex()))
    }
}

/// The notes in a file; none if it cannot be read.
fn read(file: &Path) -> BTreeMap<String, String> {
    let bytes = read_limited(file, MOST_BYTES).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_for_each_repository_until_the_upload_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let kept = KeptUploads::new(directory.path().join("uploads"));
        let layer = Digest::of(b"layer");
        assert_eq!(kept.place(layer, "r/a"), None);
        kept.note(layer, "r/a", None).unwrap();
        kept.note(layer, "r/a", Some("https://r/1")).unwrap();
        kept.note(layer, "r/b", Some("https://r/2")).unwrap();
        kept.note(layer, "r/a", Some("https://r/3")).unwrap();
        assert_eq!(kept.place(layer, "r/a").unwrap(), "https://r/3");
        assert_eq!(kept.place(layer, "r/b").unwrap(), "https://r/2");
        assert_eq!(kept.place(Digest::of(b"other"), "r/a"), None);
        kept.note(layer, "r/a", None).unwrap();
        assert_eq!(kept.place(layer, "r/a"), None);
        assert_eq!(kept.place(layer, "r/b").unwrap(), "https://r/2");
        kept.tidy(&|_| true);
        assert!(kept.place(layer, "r/b").is_some());
        kept.tidy(&|name| name != layer.hex());
        assert_eq!(kept.place(layer, "r/b"), None);
    }

    #[test]
    fn what_cannot_be_read_is_no_place_and_many_are_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let kept = KeptUploads::new(directory.path().to_owned());
        let layer = Digest::of(b"layer");
        fs::write(kept.file(layer), b"[half").unwrap();
        assert_eq!(kept.place(layer, "r/a"), None);
        for number in 0..40 {
            kept.note(layer, &format!("r/{number}"), Some("https://r/"))
                .unwrap();
            assert!(kept.place(layer, &format!("r/{number}")).is_some());
        }
        assert_eq!(read(&kept.file(layer)).len(), MOST);
    }
}
