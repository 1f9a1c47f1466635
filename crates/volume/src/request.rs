//! A user's request for a mount: a directory of the host, or a volume, at a place in the container.

use std::path::PathBuf;

/// A directory or file of the host, or a volume, that a container sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The directory, file or volume that the container sees.
    pub source: Source,
    /// Its absolute path in the container. The runtime creates it if it is missing.
    pub target: PathBuf,
    /// Whether the container can only read it.
    pub read_only: bool,
    /// How the container sees file systems that are mounted below the source.
    pub submounts: Submounts,
    /// Where mounts appear that are made later.
    pub propagation: Propagation,
    /// Whether its files get a label of SELinux by which the container may use them.
    pub relabel: Option<Relabel>,
    /// Whether an empty volume gets the files that the image has at that place.
    pub copies: bool,
    /// Labels of the volume, if it is a new one.
    pub labels: Vec<(String, String)>,
}

/// Where the contents of a mount are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file or directory of the host, by its absolute path.
    Host {
        /// The path.
        path: PathBuf,
        /// Whether a directory is made if nothing is there.
        create: bool,
    },
    /// The volume of this name. It is made if it is not there.
    Named(String),
    /// A new volume, which `--rm` removes with the container.
    Anonymous,
}

/// How the container sees file systems that are mounted below the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Submounts {
    /// They are there, and are read-only if the mount is.
    #[default]
    Follow,
    /// They are there, and can be written to even if the mount is read-only.
    Writable,
    /// They are not there.
    Hidden,
}

/// Where mounts appear that are made below a source, or a target, later (`mount_namespaces(7)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// Only where they are made.
    #[default]
    RPrivate,
    /// The same, for this mount and not for those below it.
    Private,
    /// Those of the host appear in the container.
    RSlave,
    /// The same, for this mount and not for those below it.
    Slave,
    /// Those of each side appear on the other one.
    RShared,
    /// The same, for this mount and not for those below it.
    Shared,
}

impl Propagation {
    /// All of them.
    pub(super) const ALL: [Self; 6] = [
        Self::RPrivate,
        Self::Private,
        Self::RSlave,
        Self::Slave,
        Self::RShared,
        Self::Shared,
    ];

    /// The name of it, which is the runtime's option, too.
    pub fn name(self) -> &'static str {
        match self {
            Self::RPrivate => "rprivate",
            Self::Private => "private",
            Self::RSlave => "rslave",
            Self::Slave => "slave",
            Self::RShared => "rshared",
            Self::Shared => "shared",
        }
    }
}

/// Which containers the label of SELinux lets use the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relabel {
    /// All containers (`z`).
    Shared,
    /// This container alone (`Z`).
    Private,
}

impl Volume {
    /// A mount with docker's defaults.
    pub(super) fn new(source: Source, target: PathBuf) -> Self {
        Self {
            source,
            target,
            read_only: false,
            submounts: Submounts::default(),
            propagation: Propagation::default(),
            relabel: None,
            copies: true,
            labels: Vec::new(),
        }
    }
}
