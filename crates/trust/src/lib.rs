//! Whether an index may be used: roots of trust, the user's policy, signatures, and bindings.
//!
//! A manifest's digest covers the compressed layers, not an index of them. A user who may push a referrer could
//! attach an index that shows other contents, so an index is trusted no further than the name that led to
//! it. This crate keeps three things apart:
//!
//! * **Facts** ([`Record`], the file `roots.json` beside a cached index). They are about one pair of a layer
//!   and an index and stay true for ever: "this host read the whole layer and the index is right", "this key
//!   signed the artifact that holds the index", "this image index names the manifest and the artifact", "this
//!   repository listed the artifact". Facts are kept beside the cached index.
//! * **A lookup** ([`Roots`]): the facts that count for *one* image, reached by *one* name. A binding counts
//!   only when the document that binds was passed on the way from the user's name to the manifest; a listing
//!   counts only for the repository where it was seen.
//! * **Judgement** ([`Policy::admits`], from `trust.toml`): does that suffice, today, for this name? Nothing
//!   of a judgement is kept either, so that a key taken out of `trust.toml` stops counting at once.
//!
//! The promise: an image named by digest is never read through an index that only the registry vouches for, whatever the
//! cache holds and whatever `trust.toml` says; and an index that this host found to be wrong is
//! never used again. `docs/trust.md` says the same for users.
//!
//! May use: `format` and `kernel`. No network here: callers fetch, this crate judges bytes and writes `roots.json`.

mod bind;
mod evidence;
mod file;
mod key;
mod key_error;
mod payload;
mod policy;
mod record;
mod refusal;
mod roots;
mod scope;
mod sealed;
mod signature;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use bind::{
    ARTIFACT_TYPE, BindError, BoundArtifact, IMAGE_INDEX_MEDIA_TYPE, IMAGE_MANIFEST_ANNOTATION,
    MAX_IMAGE_INDEX, Original, Platform, bind, bound_artifact,
};
pub use evidence::Evidence;
pub use file::{Identity, KeyEntry, MAX_TRUST_FILE, RegistryEntry, RegistryRoot, TrustFile, TrustFileError};
pub use key::{KeyId, MAX_KEY_FILE, PrivateKey, PublicKey, password_from_environment};
pub use key_error::KeyError;
pub use payload::{MAX_PAYLOAD, Payload, PayloadError};
pub use policy::{Policy, PolicyError};
pub use record::{MAX_RECORD, RECORD_FILE, Record, RecordError};
pub use refusal::Refusal;
pub use roots::{Binding, Listing, Roots, Signing};
pub use scope::{NameError, Pattern, PatternError, RepositoryName};
pub use signature::{
    MAX_SIGNATURE_MANIFEST, MAX_SIGNATURES, SIGNATURE_ANNOTATION, SIGNATURE_LAYER_MEDIA_TYPE, SignError,
    SignatureEntry, SignatureManifest, SignatureManifestError, SignaturePush, VerifyError, sign,
    signature_tag, verify,
};

/// The root of trust of an index, from the weakest to the strongest (design, "Trust").
///
/// Only the first depends on the users who may push to a registry. Of the others, *proven* is this host's own work but
/// says nothing that reading a layer cannot show; *signed* and *bound* are words of the image's owner and may
/// cover more, a runtime image for instance. Hence the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Root {
    /// Found by the referrers API, nothing more.
    Registry,
    /// This host read the whole layer, and layer digest, diff ID, tree and spans agreed.
    Proven,
    /// Signed by a key in `trust.toml`.
    Signed,
    /// Covered by the name itself: the layer's own table of contents, annotated in the manifest, or an image
    /// index that names both manifest and index artifact.
    Bound,
}

impl Root {
    /// Whether this root suffices for an image named by digest.
    pub const fn holds_for_digest(self) -> bool {
        !matches!(self, Self::Registry)
    }

    /// The root of a whole whose parts have the roots `parts` (a chain of layers that containerd shares, a view);
    /// `None` if there are no parts.
    pub fn weakest(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        parts.into_iter().min()
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Registry => "registry",
            Self::Proven => "proven",
            Self::Signed => "signed",
            Self::Bound => "bound",
        })
    }
}

/// How the user named an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// By a tag, so the registry's word is what the user relies on for the content anyway.
    Tag,
    /// By a digest, with or without a tag beside it.
    Digest,
}

impl Naming {
    /// How a reference names its image, given whether it has a digest.
    pub const fn of(reference_has_digest: bool) -> Self {
        if reference_has_digest {
            Self::Digest
        } else {
            Self::Tag
        }
    }
}

impl fmt::Display for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tag => "tag",
            Self::Digest => "digest",
        })
    }
}
