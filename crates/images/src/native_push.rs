//! A layer goes to a registry of Xebec without the contents that this has of it (docs/formats/native-service.md, "Pushing a layer").
//!
//! Contents are looked for in layers that the image has below this one, in those of the image that the target's tag names now, and in
//! those that were pushed to the repository from here. Whatever goes wrong, the layer is pushed as a blob.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek as _, Write};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use xebec_assembly::{RECIPE, pack, take_apart, write_contents};
use xebec_commit::{CommittedImages, Staged};
use xebec_format::digest::Digest;
use xebec_native::push::{Bitmap, Cut, MAX_CONTENTS, MAX_RECIPE, MAX_SOURCES, ParcelHead, Question, Source};
use xebec_oci::{Client, Descriptor, NativePush, NoPush, Reference};
use xebec_recipe::{Blob, ChunkId, Cutter, Recipe};

use crate::found_image::FoundImage;

/// Smaller layers are not worth three requests.
const LEAST: u64 = 128 << 10;
/// A layer of which less than this part need not be sent is pushed as a blob: that goes on where it is stopped.
const LEAST_SAVED: u64 = 8;
/// How much of a blob is read at once.
const PART: usize = 256 << 10;

/// A layer that is pushed.
pub(crate) struct Push<'a> {
    pub(crate) target: &'a Client,
    pub(crate) to: &'a Reference,
    pub(crate) committed: &'a CommittedImages,
    pub(crate) image: &'a FoundImage,
    pub(crate) layer: &'a Descriptor,
}

/// Why a layer is pushed as a blob.
pub(crate) enum Instead {
    /// There is nothing to gain, or the registry does not do it, or has no time for it now.
    Plain(String),
    /// It did not come of it what should have.
    Failed(String),
}

impl From<NoPush> for Instead {
    fn from(refused: NoPush) -> Self {
        match refused.is_busy() {
            true => Self::Plain(refused.to_string()),
            false => Self::Failed(refused.to_string()),
        }
    }
}

impl Push<'_> {
    /// Pushes the layer, and gives how many bytes were sent.
    ///
    /// # Errors
    /// Why it is to be pushed as a blob.
    pub(crate) async fn push(&self) -> Result<u64, Instead> {
        let plain = |error: &dyn std::fmt::Display| Instead::Plain(error.to_string());
        let service = self.target.native_push(self.to.repository());
        let service = service.ok_or_else(|| plain(&"the registry is not known to be one of Xebec"))?;
        let Descriptor { digest, size, .. } = *self.layer;
        if size < LEAST {
            return Err(plain(&"the layer is small"));
        }
        if self.target.blob_size(self.to.repository(), &digest).await.is_ok() {
            return Err(plain(&"it is there"));
        }
        let offer = service.offer().await.map_err(|error| plain(&error))?;
        if size > offer.layer {
            return Err(plain(&"the layer is too large for it"));
        }
        let cutter = match offer.cut {
            Cut::Files => Cutter::Files,
            Cut::Contents => Cutter::CONTENT,
        };
        let path = self.committed.blob(digest);
        let apart = in_thread(move || apart(&path, digest, size, cutter)).await;
        let recipe = apart.map_err(|error| plain(&error))?;
        if recipe.chunks().len() > MAX_CONTENTS {
            return Err(plain(&"it has too many files"));
        }
        self.send(&service, recipe).await
    }

    async fn send(&self, service: &NativePush, recipe: Recipe) -> Result<u64, Instead> {
        let failed = |error: &dyn std::fmt::Display| Instead::Failed(error.to_string());
        let question = Question {
            sources: self.sources().await,
            contents: recipe.chunks().map(|(id, length)| (id.0, length)).collect(),
        };
        let asked = question.encode().map_err(|error| failed(&error))?;
        let here = service.which(asked, question.contents.len()).await?;
        let too_little = || Instead::Plain("the registry has too little of it".to_owned());
        if here.as_bytes().iter().all(|byte| *byte == 0) {
            return Err(too_little());
        }
        let path = self.committed.blob(self.layer.digest);
        let staged = self.committed.stage().map_err(|error| failed(&error))?;
        let parcel = Parcel {
            recipe,
            sources: question.sources,
            here,
        };
        let written = in_thread(move || parcel.write(&path, staged)).await;
        let (staged, length) = written.map_err(|error| failed(&error))?;
        if length > self.layer.size - self.layer.size / LEAST_SAVED {
            return Err(too_little());
        }
        // It has no name. It is opened by its descriptor, which `staged` keeps.
        let path = PathBuf::from(format!("/proc/self/fd/{}", staged.file().as_raw_fd()));
        service.send(path, length, self.layer.size).await?;
        Ok(length)
    }

    /// Layers that may have contents of this one.
    async fn sources(&self) -> Vec<Source> {
        let mut layers: Vec<Digest> = self.image.layers.iter().map(|layer| layer.digest).collect();
        layers.extend(self.pushed_before());
        layers.extend(self.there_now().await);
        let mut seen = HashSet::from([self.layer.digest]);
        layers.retain(|layer| seen.insert(*layer));
        layers.truncate(MAX_SOURCES);
        let source = |layer: Digest| Source {
            repository: None,
            layer: layer.to_string(),
        };
        layers.into_iter().map(source).collect()
    }

    /// Layers of committed images that were pushed to the repository, the newest first.
    fn pushed_before(&self) -> Vec<Digest> {
        let images = self.committed.list().unwrap_or_default();
        let there = images.into_iter().rev().filter(|image| {
            let pushed = image
                .pushed
                .as_ref()
                .and_then(|name| name.parse::<Reference>().ok());
            pushed.is_some_and(|pushed| pushed.repository() == self.to.repository())
        });
        there
            .filter_map(|image| image.layer)
            .map(|(layer, _)| layer)
            .collect()
    }

    /// Layers of the image that has the target's name now.
    async fn there_now(&self) -> Vec<Digest> {
        let platform = xebec_oci::Platform::host();
        match self.target.resolve(self.to, &platform).await {
            Ok(image) => image.manifest.layers.iter().map(|layer| layer.digest).collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Takes a blob apart.
fn apart(path: &Path, digest: Digest, size: u64, cutter: Cutter) -> Result<Recipe, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let of = Blob {
        digest: digest.to_string(),
        size,
    };
    let recipe = take_apart(BufReader::with_capacity(PART, file), of, cutter, RECIPE);
    recipe.map_err(|error| error.to_string())
}

/// What is sent.
struct Parcel {
    recipe: Recipe,
    sources: Vec<Source>,
    here: Bitmap,
}

impl Parcel {
    /// Writes it to a file, and gives its length.
    fn write(&self, blob: &Path, staged: Staged) -> Result<(Staged, u64), String> {
        let length = self.write_to(blob, staged.file());
        length
            .map(|length| (staged, length))
            .map_err(|error| error.to_string())
    }

    fn write_to(&self, blob: &Path, file: &File) -> io::Result<u64> {
        let recipe = self.recipe.to_bytes();
        if recipe.len() as u64 > MAX_RECIPE {
            return Err(io::Error::other("its recipe is too long"));
        }
        let head = ParcelHead {
            sources: self.sources.clone(),
            recipe: recipe.len() as u64,
            contents: self.here.len() as u64,
        };
        let mut to = BufWriter::with_capacity(PART, file);
        to.write_all(&head.encode().map_err(io::Error::other)?)?;
        to.write_all(&recipe)?;
        to.write_all(self.here.as_bytes())?;
        let numbers: HashMap<ChunkId, usize> = self
            .recipe
            .chunks()
            .enumerate()
            .map(|(number, (id, _))| (id, number))
            .collect();
        let is_sent = |id: &ChunkId| numbers.get(id).is_none_or(|number| !self.here.has(*number));
        let mut contents = pack(to)?;
        let blob = BufReader::with_capacity(PART, File::open(blob)?);
        write_contents(&self.recipe, blob, &is_sent, &mut contents).map_err(io::Error::other)?;
        contents.finish()?.flush()?;
        let mut file = file;
        file.stream_position()
    }
}

/// Does work that takes the processor for long.
async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}
