//! Copies one object to a backup from one source, and gives it its name once it is whole, right and durable.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use xebec_objects::files::{give_name, hash, link_or_copy, remove};
use xebec_objects::{Digest, Directory, Hasher, is_absence};

use super::reading::Source;
use crate::error::{Result, StoreError};
use crate::records::objects::Object;
use crate::store::Store;

pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { doing, path, source }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| StoreError::System {
        doing: "work on a backup",
        source: io::Error::other(error),
    })?
}

/// Whether a copy has wrong bytes since the store has, or since the disk of the backup gives back others than it took.
fn blame(from: &Path, to: &Path, wanted: &Digest) -> Result<Tried> {
    Ok(match hash(from, wanted) {
        Ok(found) if found == *wanted => {
            let error = "it gives back other bytes than were written to it; take the backup on another disk";
            return Err(failed("write", to)(io::Error::new(
                io::ErrorKind::InvalidData,
                error,
            )));
        }
        Ok(_) => Tried::Damaged,
        Err(error) if is_absence(&error) => Tried::Damaged,
        Err(error) => Tried::Unread(error.to_string()),
    })
}

/// What came of one source of an object.
pub(super) enum Tried {
    /// The backup has it; whether it was copied, and not linked.
    Taken(bool),
    /// The source has wrong bytes, or none.
    Damaged,
    /// Nobody knows: it cannot be read.
    Unread(String),
}

/// From where objects are copied, and where a copy is made.
pub(super) struct Copying<'a> {
    pub(super) store: &'a Store,
    /// The main place.
    pub(super) from: Directory,
    /// The copy that is being made. Under the name of an object, half of it would count as kept by the next backup if this one is killed.
    pub(super) copy: PathBuf,
}

impl Copying<'_> {
    /// Links or copies it from the main place. Of a link, only the size is compared: nothing is read.
    pub(super) async fn take_main(&self, key: &str, object: &Object, to: &Path) -> Result<Tried> {
        let from = self.from.path(key).map_err(failed("find", Path::new(key)))?;
        match self.store.inner.objects.size(key).await {
            Ok(Some(size)) if size == object.size => {}
            Ok(_) => return Ok(Tried::Damaged),
            Err(error) => return Ok(Tried::Unread(error.to_string())),
        }
        let (wanted, to, copy) = (object.digest.clone(), to.to_owned(), self.copy.clone());
        blocking(move || {
            let taken = link_or_copy(&from, &to, &copy).and_then(|is_copied| {
                let is_right = !is_copied || hash(&copy, &wanted)? == wanted;
                if is_copied && is_right {
                    give_name(&copy, &to)?;
                }
                Ok((is_copied, is_right))
            });
            let tried = match taken {
                Ok((is_copied, true)) => return Ok(Tried::Taken(is_copied)),
                Ok((_, false)) => blame(&from, &to, &wanted)?,
                // It is gone here, and not the directory of the backup.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => Tried::Damaged,
                // Either it cannot be read here, or it cannot be written there.
                Err(error) => match hash(&from, &wanted) {
                    Err(why) => Tried::Unread(why.to_string()),
                    Ok(_) => return Err(failed("write", &to)(error)),
                },
            };
            remove(&copy).map_err(failed("remove", &copy))?;
            Ok(tried)
        })
        .await
    }

    /// Copies it from another place.
    pub(super) async fn copy_from(&self, source: &Source, object: &Object, to: &Path) -> Result<Tried> {
        let unread = |error: io::Error| match is_absence(&error) || is_lost(&error) {
            true => Tried::Damaged,
            false => Tried::Unread(error.to_string()),
        };
        let mut pieces = match self.store.read_source(source, 0..object.size).await {
            Ok(pieces) => pieces,
            Err(error) => return Ok(unread(error)),
        };
        let path = self.copy.clone();
        let made = blocking(move || {
            let make = || {
                remove(&path)?;
                fs::File::create_new(&path)
            };
            make().map_err(failed("make", &path))
        });
        let mut file = tokio::fs::File::from_std(made.await?);
        let mut hasher = Hasher::new(object.digest.algorithm());
        let mut tried = None;
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => {
                    hasher.update(&piece);
                    file.write_all(&piece).await.map_err(failed("write", to))?;
                }
                Err(error) => {
                    tried = Some(unread(error));
                    break;
                }
            }
        }
        let is_right = tried.is_none() && hasher.finish() == object.digest;
        if is_right {
            // A write comes back once its bytes are taken in, and syncing does not tell how the last one ended.
            file.flush().await.map_err(failed("write", to))?;
            file.sync_all().await.map_err(failed("sync", to))?;
            let written = file.metadata().await.map_err(failed("look at", to))?.len();
            if written != object.size {
                let error = format!("it has {written} bytes, and should have {}", object.size);
                return Err(failed("write", to)(io::Error::other(error)));
            }
            let (copy, to) = (self.copy.clone(), to.to_owned());
            blocking(move || give_name(&copy, &to).map_err(failed("write", &to))).await?;
            return Ok(Tried::Taken(true));
        }
        drop(file);
        remove(&self.copy).map_err(failed("remove", &self.copy))?;
        Ok(tried.unwrap_or(Tried::Damaged))
    }
}

/// Whether an error says that what a recipe needs is gone.
fn is_lost(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(StoreError::Lost(_)))
}

#[cfg(test)]
mod tests {
    use xebec_objects::Algorithm;

    use super::*;

    /// A disk that gives back other bytes than it took is the backup's, and not the store's.
    #[test]
    fn a_copy_with_wrong_bytes_is_blamed_on_the_disk_that_has_them() {
        let top = tempfile::tempdir().unwrap();
        let (from, to) = (top.path().join("from"), top.path().join("to"));
        let wanted = Digest::of(Algorithm::Sha256, b"right");
        fs::write(&from, b"right").unwrap();
        let error = blame(&from, &to, &wanted).err().unwrap().to_string();
        assert!(error.contains(&to.display().to_string()), "{error}");
        assert!(!error.contains(&from.display().to_string()), "{error}");
        fs::write(&from, b"wrong").unwrap();
        assert!(matches!(blame(&from, &to, &wanted), Ok(Tried::Damaged)));
        fs::remove_file(&from).unwrap();
        assert!(matches!(blame(&from, &to, &wanted), Ok(Tried::Damaged)));
    }
}
