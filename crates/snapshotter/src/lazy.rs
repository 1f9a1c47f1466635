//! The interface that this crate needs of an implementer that can show images without unpacking them.
//!
//! A layer is *offered* when containerd is about to unpack it. If it is admitted, a committed snapshot stands for it and
//! containerd neither fetches nor unpacks anything. Later a container is made on it; then a *view* is asked for, which
//! shows the files of the image's layers up to that one, flattened, at a path. It is held under the key of the container's
//! snapshot until that is released.
//!
//! A snapshot that stands for a layer is named by the chain of its layers, and images share it. Nobody has compared what an image's
//! author says of its chain with what the layers hold, as containerd does when it unpacks. So the files that a container is shown come
//! from the image whose layer it was made on, never from another image that was there first. The lower snapshots of a chain only hold
//! places, the uppermost one says which image it is, and an unpacked one notes whose layers are below it.
//!
//! Admitted layers are always the lowest of a chain: a layer on an unpacked one is unpacked too. So one view and the
//! directories above it are a whole chain.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};

use crate::containerd::owners::ContainerImage;
use crate::error::SnapshotError;
use crate::mapped::Binder;
use crate::record::LazyLayer;
use crate::usage::Usage;

/// A layer that containerd would have to unpack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerOffer {
    /// The image's name, as containerd was given it.
    pub reference: String,
    /// The digest of the image's manifest for this platform; clients before containerd 1.7 do not say.
    pub manifest: Option<String>,
    /// The layer's digest.
    pub layer: String,
    /// How many layers the image has up to and with this one.
    pub depth: u32,
    /// The chain ID (OCI image specification, `config.md`) of the layers up to and with this one.
    pub chain: String,
    /// Digests of this layer and those above it, as many as fit into a label; empty if the client did not say.
    pub layers: Vec<String>,
    /// The lower neighbour, if there is one. It may be known by another image's name.
    pub below: Option<LazyLayer>,
    /// The chain ID that it stands for; empty without one.
    pub parent: String,
}

/// Whether a layer can be read where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, as this manifest's.
    Lazy {
        /// The digest of the image's manifest.
        manifest: String,
        /// It is the image's uppermost layer.
        is_whole: bool,
    },
    /// No; containerd unpacks it.
    NotLazy(NotLazy),
}

/// Why a layer is unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLazy {
    /// In a word, to count by.
    pub reason: Reason,
    /// For people: what it is about, and what would help.
    pub detail: String,
    /// The digest of the image's manifest, if all layers below this one can be lazy as this image's.
    pub base: Option<String>,
}

/// Reasons why a layer is unpacked, to count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// There is no index of it.
    NoIndex,
    /// There is one, but nothing vouches for it well enough.
    NotTrusted,
    /// The layer below it was unpacked.
    OnUnpacked,
    /// The chain of its image's layers stands for an image of another repository.
    OtherImage,
    /// The client's labels are not what the image says.
    WrongLabels,
    /// The image could not be asked about.
    Unreachable,
    /// Lazy images are not wanted here.
    Off,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 7] = [
        Reason::NoIndex,
        Reason::NotTrusted,
        Reason::OnUnpacked,
        Reason::OtherImage,
        Reason::WrongLabels,
        Reason::Unreachable,
        Reason::Off,
    ];

    /// As metrics and labels have it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::NoIndex => "no-index",
            Reason::NotTrusted => "not-trusted",
            Reason::OnUnpacked => "on-unpacked",
            Reason::OtherImage => "other-image",
            Reason::WrongLabels => "wrong-labels",
            Reason::Unreachable => "unreachable",
            Reason::Off => "off",
        }
    }
}

/// The part of the daemon that can show images without unpacking them.
pub trait LazyImages: Binder {
    /// Whether a layer can be read where it is. May take as long as a registry takes to answer, never as long as a layer
    /// takes to be fetched.
    fn admit(&self, offer: LayerOffer) -> impl Future<Output = Verdict> + Send;

    /// Shows the layers up to and with `layer`, flattened, and says where; `is_run` if a container may be started on it.
    /// Asked again under the same key, it may move to another place; what was mounted from the first one goes on.
    fn view(
        &self,
        key: &str,
        layer: &LazyLayer,
        is_run: bool,
    ) -> impl Future<Output = Result<PathBuf, SnapshotError>> + Send;

    /// A container is made on `layer`, whose chain ID is `chain`, by the name of `image`, which need not be the one for which
    /// the layer was admitted. Returns the layer of the image whose layers the container is shown.
    ///
    /// # Errors
    /// [`ErrorKind::FailedPrecondition`](crate::ErrorKind::FailedPrecondition) when what vouches for them is not enough for
    /// that name, [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when that cannot be told now.
    fn own(
        &self,
        image: &ContainerImage,
        chain: &str,
        layer: &LazyLayer,
    ) -> impl Future<Output = Result<LazyLayer, SnapshotError>> + Send;

    /// Whether the layers up to and with `layer`, whose chain ID is `chain`, may be shown to a container of any image, as far as this
    /// host knows.
    fn holds_for_all(&self, chain: &str, layer: &LazyLayer) -> impl Future<Output = bool> + Send;

    /// Nobody uses what was shown under this key any more. Nothing happens if nothing was.
    ///
    /// # Errors
    /// When it may still be shown by that key.
    fn release(&self, key: &str) -> impl Future<Output = Result<(), SnapshotError>> + Send;

    /// Keys under which views are held. May wait for a mount under way, so it is not for threads that serve others.
    fn held(&self) -> Vec<String>;

    /// The bytes and inodes of a layer that are on this host now.
    fn usage(&self, layer: &LazyLayer) -> Usage;

    /// Snapshots were removed. Layers that only they needed must leave this host, since the client that removed them wants their room.
    /// Says whether that is done; if not, it is asked again. Meanwhile only layers of images that are being pulled are offered.
    /// Afterwards the facts about other images are found out anew.
    fn let_go(&self, shown: Shown) -> impl Future<Output = bool> + Send;
}

/// The images and layers that snapshots show, by the digests of the images' manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Of each image that a snapshot shows, how many of its lowest layers.
    pub kept: BTreeMap<String, u32>,
    /// Chain IDs of lazy layers that snapshots stand for: each is also that of other images' that have it, of which no snapshot says so.
    pub chains: BTreeSet<String>,
    /// Images that removed snapshots showed, whole or in part. Others may still show them.
    pub gone: BTreeSet<String>,
    /// Images that are being pulled, of which there may be no snapshot yet.
    pub pulled: BTreeSet<String>,
}

/// Nobody: every layer is unpacked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Binder for Nothing {
    fn bind(&self, from: &Path, _at: &Path) -> Result<(), SnapshotError> {
        let message = format!(
            "{} is the view of a lazy image, and those are off",
            from.display()
        );
        Err(SnapshotError::precondition(message))
    }

    fn unbind(&self, _at: &Path) {}
}

impl LazyImages for Nothing {
    async fn admit(&self, _offer: LayerOffer) -> Verdict {
        Verdict::NotLazy(NotLazy {
            reason: Reason::Off,
            detail: "lazy images are off".to_owned(),
            base: None,
        })
    }

    async fn view(&self, _key: &str, layer: &LazyLayer, _is_run: bool) -> Result<PathBuf, SnapshotError> {
        let message = format!(
            "{} was lazy when it was pulled, and lazy images are off now",
            layer.reference
        );
        Err(SnapshotError::precondition(message))
    }

    async fn own(
        &self,
        _image: &ContainerImage,
        _chain: &str,
        layer: &LazyLayer,
    ) -> Result<LazyLayer, SnapshotError> {
        Ok(layer.clone())
    }

    async fn holds_for_all(&self, _chain: &str, _layer: &LazyLayer) -> bool {
        true
    }

    async fn release(&self, _key: &str) -> Result<(), SnapshotError> {
        Ok(())
    }

    fn held(&self) -> Vec<String> {
        Vec::new()
    }

    fn usage(&self, _layer: &LazyLayer) -> Usage {
        Usage::default()
    }

    async fn let_go(&self, _shown: Shown) -> bool {
        true
    }
}
