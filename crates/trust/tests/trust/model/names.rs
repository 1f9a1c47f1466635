//! The objects in the world of the test: repositories, images, layers, indexes, policies.

use xebec_format::digest::Digest;
use xebec_trust::{BoundArtifact, Original, Platform, Policy, PrivateKey, RepositoryName, TrustFile, bind};

pub(crate) const REPOSITORIES: [&str; 2] = ["r0.example.com/app", "r1.example.com/app"];
/// Layers of each image. Image 2 is the attacker's: its manifest annotates a lying table of contents of layer
/// 0.
pub(crate) const IMAGES: [&[u8]; 3] = [&[0, 1], &[0, 2], &[0]];
pub(crate) const ATTACKERS_IMAGE: u8 = 2;
/// Variants of an index: 0 is true, the others lie.
pub(crate) const VARIANTS: u8 = 3;

/// The document that a tag points to, or a digest names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// An image manifest.
    Manifest(u8),
    /// An image index that binds a variant to an image.
    ImageIndex(u8, u8),
}

pub(crate) fn repository(number: u8) -> RepositoryName {
    RepositoryName::from_docker_reference(REPOSITORIES[usize::from(number)]).unwrap()
}

pub(crate) fn layer(number: u8) -> Digest {
    Digest::of(format!("layer {number}").as_bytes())
}

pub(crate) fn index(layer: u8, variant: u8) -> Digest {
    Digest::of(format!("index {variant} of layer {layer}").as_bytes())
}

pub(crate) fn manifest(image: u8) -> Vec<u8> {
    format!("manifest {image}").into_bytes()
}

pub(crate) fn artifact(image: u8, variant: u8) -> Digest {
    Digest::of(format!("artifact {variant} of image {image}").as_bytes())
}

pub(crate) fn image_index(image: u8, variant: u8) -> Vec<u8> {
    let platform = Platform {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let bytes = manifest(image);
    let original = Original::Manifest {
        media_type: "m",
        bytes: &bytes,
        platform,
    };
    let bound = BoundArtifact {
        manifest: Digest::of(&bytes),
        artifact: artifact(image, variant),
        artifact_size: 1,
    };
    bind(&original, &[bound]).unwrap()
}

/// The documents from a name to the image manifest.
pub(crate) fn path(target: Target) -> Vec<Digest> {
    match target {
        Target::Manifest(image) => vec![Digest::of(&manifest(image))],
        Target::ImageIndex(image, variant) => {
            vec![
                Digest::of(&image_index(image, variant)),
                Digest::of(&manifest(image)),
            ]
        }
    }
}

pub(crate) fn image_of(target: Target) -> u8 {
    match target {
        Target::Manifest(image) | Target::ImageIndex(image, _) => image,
    }
}

pub(crate) struct Rules {
    pub(crate) text: &'static str,
    /// Per repository: does the registry suffice for tags?
    pub(crate) tags: [bool; 2],
    /// Key, whether it is valid in each repository, whether copies count.
    pub(crate) keys: &'static [(u8, [bool; 2], bool)],
}

pub(crate) const POLICIES: [Rules; 4] = [
    Rules {
        text: "",
        tags: [true, true],
        keys: &[],
    },
    Rules {
        text: "registry-root = \"never\"\n[[key]]\nname = \"a\"\nfile = \"1\"\nrepositories = [\"**\"]\n",
        tags: [false, false],
        keys: &[(1, [true, true], false)],
    },
    Rules {
        text: "[[registry]]\nprefix = \"r1.example.com\"\nregistry-root = \"never\"\n\
               [[key]]\nname = \"a\"\nfile = \"1\"\nrepositories = [\"r0.example.com/*\"]\n",
        tags: [true, false],
        keys: &[(1, [true, false], false)],
    },
    Rules {
        text: "[[key]]\nname = \"a\"\nfile = \"1\"\nrepositories = [\"**\"]\nidentity = \"any\"\n\
               [[key]]\nname = \"b\"\nfile = \"2\"\nrepositories = [\"r1.example.com/**\"]\n",
        tags: [true, true],
        keys: &[(1, [true, true], true), (2, [false, true], false)],
    },
];

impl Rules {
    pub(crate) fn policy(&self) -> Policy {
        let file = TrustFile::parse(self.text.as_bytes()).unwrap();
        Policy::build(&file, |name| {
            let key = PrivateKey::from_secret(&[name.parse().unwrap(); 32]).unwrap();
            Ok((name.into(), key.public().unwrap().to_pem().unwrap().into_bytes()))
        })
        .unwrap()
    }

    /// Whether a signature by `key` made for a repository counts in another.
    pub(crate) fn counts(&self, key: u8, made_for: u8, place: u8) -> bool {
        self.keys.iter().any(|(trusted, valid, any)| {
            *trusted == key && valid[usize::from(place)] && (*any || made_for == place)
        })
    }
}
