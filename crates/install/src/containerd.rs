//! Which keys of containerd's configuration make Xebec one of its snapshotters, by the version of that file.
//!
//! Source: containerd's `docs/cri/config.md`, `plugins/cri/images/plugin.go` (which keys version 3 moved),
//! `plugins/transfer/plugin.go` (what may be unpacked where) and `docs/man/containerd-config.toml.5.md` (version 4 moved
//! nothing that is set here). containerd 1.x reads version 2, and 2.x all of them.

use std::path::Path;

use toml_edit::DocumentMut;

use crate::keys::{Key, Wanted};

/// Name of the snapshotter.
pub(crate) const NAME: &str = "xebec";

/// Version of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Of containerd 1.x.
    Two,
    /// Of containerd 2.x, and so is version 4 as far as it matters here.
    Three,
}

impl Version {
    /// The version that the file states.
    ///
    /// # Errors
    /// With what to do, when it is none that is known, or says nothing: that is version 1.
    pub(crate) fn of(document: &DocumentMut) -> Result<Self, String> {
        match document.get("version").map(|item| item.as_integer()) {
            Some(Some(2)) => Ok(Self::Two),
            Some(Some(3 | 4)) => Ok(Self::Three),
            None | Some(Some(1)) => Err(
                "it is of version 1, or says no version: bring it up to date first, with \
                 `containerd --config FILE config migrate`"
                    .to_owned(),
            ),
            _ => Err("its version is none of 2, 3 and 4; this xebec knows no other".to_owned()),
        }
    }

    /// The number that a new file says.
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// The keys to set. `socket` is the snapshotter's and `data` the directory of its data, as the host sees them.
pub(crate) fn keys(
    version: Version,
    socket: &Path,
    data: &Path,
    is_default: bool,
    unpack: Unpack,
) -> Vec<(Key, Wanted)> {
    let text = |path: &Path| Wanted::Text(path.to_string_lossy().into_owned());
    let proxy = |name: &[&str]| key(&[&["proxy_plugins", NAME], name].concat());
    let mut keys = vec![
        (proxy(&["type"]), Wanted::Text("snapshot".to_owned())),
        (proxy(&["address"]), text(socket)),
        // The directory that CRI measures for the kubelet's disk figures.
        (proxy(&["exports", "root"]), text(data)),
        // Without it a snapshotter is told neither image nor layer, and can only unpack.
        (
            proxy(&["exports", "enable_remote_snapshot_annotations"]),
            Wanted::Text("true".to_owned()),
        ),
    ];
    let images: &[&str] = match version {
        Version::Two => &["plugins", "io.containerd.grpc.v1.cri", "containerd"],
        Version::Three => &["plugins", "io.containerd.cri.v1.images"],
    };
    let images = |name: &str| key(&[images, &[name]].concat());
    // The same for images that Kubernetes pulls.
    keys.push((images("disable_snapshot_annotations"), Wanted::Switch(false)));
    if is_default {
        keys.push((images("snapshotter"), Wanted::Text(NAME.to_owned())));
    }
    if unpack != Unpack::Unknown {
        // containerd 2.x leaves mapped ids to us, and so no image is copied for them. 1.x cannot mount what we answer.
        let words = vec!["remap-ids".to_owned()];
        keys.push((proxy(&["capabilities"]), Wanted::Words(words)));
        // containerd's own pulls unpack only where this list says. It replaces the built-in one, so what that is for
        // goes first when there was no list.
        let list = key(&["plugins", "io.containerd.transfer.v1.local", "unpack_config"]);
        let entry = |snapshotter: &str| {
            let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            Wanted::Among(vec![
                field("platform", "linux"),
                field("snapshotter", snapshotter),
            ])
        };
        if unpack == Unpack::BuiltIn {
            keys.push((list.clone(), entry("overlayfs")));
        }
        keys.push((list, entry(NAME)));
    }
    keys
}

/// Where containerd listens, if its configuration says so.
pub(crate) fn listens(document: &DocumentMut) -> Option<&str> {
    document.get("grpc")?.get("address")?.as_str()
}

/// Where containerd's own pulls unpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpack {
    /// It is containerd 1.x, which has no such list.
    Unknown,
    /// The list is the built-in one.
    BuiltIn,
    /// The file has a list.
    Listed,
}

impl Unpack {
    /// The setting in a file, for a containerd of this major version, if that is known.
    pub(crate) fn of(document: &DocumentMut, version: Version, containerd: Option<u32>) -> Self {
        let transfer = document
            .get("plugins")
            .and_then(|plugins| plugins.get("io.containerd.transfer.v1.local"));
        let list = transfer.and_then(|transfer| transfer.get("unpack_config"));
        match list {
            Some(_) => Self::Listed,
            None if version == Version::Three || containerd == Some(2) => Self::BuiltIn,
            None => Self::Unknown,
        }
    }
}

fn key(names: &[&str]) -> Key {
    names.iter().map(|name| (*name).to_owned()).collect()
}
