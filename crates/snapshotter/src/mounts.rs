//! How a chain becomes a mount.
//!
//! As containerd's overlay snapshotter has it: a snapshot on nothing is its directory, bound; one that is only read, on a
//! single other, is that one's, bound; all others are an overlay. Where the chain begins with lazy layers, the view that
//! shows them flattened is the lowest directory.
//!
//! With mapped ids the directories below are mapped, by containerd, which is told how; the snapshot's own is not, its files
//! have the mapped owners on disk. So one on nothing is bound as it is.
//!
//! `index=off` and the like: an upper directory is used by one overlay at a time, and lower ones are shared between
//! many, which overlayfs would refuse to trust with an index.

use std::path::{Path, PathBuf};

use crate::api::{Kind, Mount};
use crate::id_mapping::IdMapping;

/// The directories that a mount is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layers<'a> {
    /// [`Kind::Active`] or [`Kind::View`].
    pub kind: Kind,
    /// How ids of the directories below it are mapped.
    pub id_mapping: Option<&'a IdMapping>,
    /// The snapshot's own directory.
    pub upper: &'a Path,
    /// Where overlayfs works for it.
    pub work: &'a Path,
    /// The directories below it, the uppermost first.
    pub lower: &'a [PathBuf],
}

/// The mounts that a client has to make.
pub(crate) fn compose(layers: &Layers<'_>) -> Vec<Mount> {
    let is_read_only = layers.kind == Kind::View;
    let mount = match layers.lower {
        [] => bind(layers.upper, is_read_only),
        [only] if is_read_only => bind(only, true),
        lower => {
            let mut options = layers
                .id_mapping
                .map_or_else(Vec::new, |mapping| mapping.options().to_vec());
            if !is_read_only {
                options.push(format!("workdir={}", layers.work.display()));
                options.push(format!("upperdir={}", layers.upper.display()));
            }
            let lower: Vec<_> = lower.iter().map(|path| path.display().to_string()).collect();
            options.push(format!("lowerdir={}", lower.join(":")));
            options.push("index=off".to_owned());
            Mount {
                r#type: "overlay".to_owned(),
                source: "overlay".to_owned(),
                target: String::new(),
                options,
            }
        }
    };
    vec![mount]
}

fn bind(source: &Path, is_read_only: bool) -> Mount {
    let access = if is_read_only { "ro" } else { "rw" };
    Mount {
        r#type: "bind".to_owned(),
        source: source.display().to_string(),
        target: String::new(),
        options: vec![access.to_owned(), "rbind".to_owned()],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn composed(kind: Kind, lower: &[&str]) -> String {
        let lower: Vec<PathBuf> = lower.iter().map(PathBuf::from).collect();
        let mounts = compose(&Layers {
            kind,
            id_mapping: None,
            upper: Path::new("/s/u/7"),
            work: Path::new("/s/w/7"),
            lower: &lower,
        });
        let texts = mounts
            .iter()
            .map(|mount| format!("{} {} {}", mount.r#type, mount.source, mount.options.join(" ")));
        texts.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_shape() {
        assert_eq!(composed(Kind::Active, &[]), "bind /s/u/7 rw rbind");
        assert_eq!(composed(Kind::View, &[]), "bind /s/u/7 ro rbind");
        assert_eq!(composed(Kind::View, &["/s/u/3"]), "bind /s/u/3 ro rbind");
        assert_eq!(
            composed(Kind::Active, &["/s/u/3"]),
            "overlay overlay workdir=/s/w/7 upperdir=/s/u/7 lowerdir=/s/u/3 index=off"
        );
        assert_eq!(
            composed(Kind::View, &["/s/u/3", "/s/u/7.v"]),
            "overlay overlay lowerdir=/s/u/3:/s/u/7.v index=off"
        );
    }
    #[test]
    fn five_hundred_layers_fit_into_a_page() {
        let root = tempfile::tempdir().unwrap();
        let directories = crate::directories::Directories::open(root.path()).unwrap();
        // Ids of a host that has made a million and a half of them.
        let id = 36_u64.pow(4);
        let mut lower: Vec<PathBuf> = (id - 500..id).map(|id| directories.upper(id)).collect();
        lower.push(directories.view(id));
        let mounts = compose(&Layers {
            kind: Kind::Active,
            id_mapping: None,
            upper: Path::new("/var/lib/xebec/snapshots/u/10000"),
            work: Path::new("/var/lib/xebec/snapshots/w/10000"),
            lower: &lower,
        });
        let common = format!("{}/", directories.upper(id).parent().unwrap().display());
        // As containerd shortens the names, and the kernel joins the options.
        let options = mounts[0].options.join(",").replace(&common, "");
        assert!(options.len() < 4096, "{} bytes", options.len());
    }
}
