//! Options for mounts: parts of the host that a container sees, memory and volumes. And `xebec volume`.

use clap::{Args, Subcommand};
use xebec_volume::{Mount, Tmpfs, Volume};

use super::json::Json;
use crate::template::Format;

/// Options for a container's mounts: directories of the host, memory and volumes.
#[derive(Debug, Args)]
pub(crate) struct VolumeArgs {
    /// Show a host directory in the container, or a volume (NAME:DST), or a new volume (DST). A directory or volume that is
    /// not there is made. Options: ro, rw, z, Z, nocopy, rprivate, rslave, rshared. Repeatable.
    #[arg(short, long = "volume", value_name = "SRC:DST[:OPTIONS]")]
    volumes: Vec<Volume>,
    /// The same in words: type=bind|volume|tmpfs,source=SRC,target=DST[,readonly]. The source of a bind mount must be
    /// there. Repeatable.
    #[arg(long = "mount", value_name = "KEY=VALUE,…")]
    mounts: Vec<Mount>,
    /// Put a directory in memory: DIR[:size=64m,mode=1777,exec]. Repeatable.
    #[arg(long, value_name = "DIR[:OPTIONS]")]
    tmpfs: Vec<Tmpfs>,
}

impl VolumeArgs {
    /// The mounts that `--volume` alone names.
    pub(crate) fn by_volume(&self) -> &[Volume] {
        &self.volumes
    }

    /// The mounts that `--tmpfs` alone names.
    pub(crate) fn by_tmpfs(&self) -> &[Tmpfs] {
        &self.tmpfs
    }

    /// The mounts that `--mount` alone names.
    pub(crate) fn by_mount(&self) -> &[Mount] {
        &self.mounts
    }

    /// Directories of the host, and volumes.
    pub(crate) fn volumes(&self) -> Vec<Volume> {
        let mounts = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Volume(volume) => Some(volume),
            Mount::Tmpfs(_) => None,
        });
        self.volumes.iter().chain(mounts).cloned().collect()
    }

    /// Directories in memory.
    pub(crate) fn tmpfs(&self) -> Vec<Tmpfs> {
        let mounts = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Tmpfs(tmpfs) => Some(tmpfs),
            Mount::Volume(_) => None,
        });
        self.tmpfs.iter().chain(mounts).cloned().collect()
    }
}

/// `xebec volume`.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume, and print its name. One that is there stays as it is.
    Create(CreateArgs),
    /// List volumes.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show volumes as JSON.
    Inspect {
        /// The volumes.
        #[arg(required = true, value_name = "VOLUME")]
        names: Vec<String>,
        /// Print a line for each, of fields as {{.Mountpoint}} or {{json .Labels}} and text; json: all fields.
        #[arg(short, long, value_name = "FORMAT")]
        format: Option<Format>,
    },
    /// Remove volumes with all that is in them. One that a container uses stays, also if the container has ended.
    #[command(visible_alias = "remove")]
    Rm(RemoveArgs),
    /// Remove the anonymous volumes that no container uses, or all that none uses.
    Prune(PruneArgs),
}

/// `xebec volume create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The volume's name. By default a random one.
    pub(crate) name: Option<String>,
    /// Only local, which it always is.
    #[arg(short, long, value_name = "DRIVER", value_parser = driver)]
    driver: Option<String>,
    /// Label the volume: KEY or KEY=VALUE. Repeatable.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
}

fn driver(text: &str) -> Result<String, String> {
    match text {
        "local" => Ok(text.to_owned()),
        _ => Err(
            "there is one driver, local; mount the file system on the host, and use `xebec run --mount type=bind`".to_owned(),
        ),
    }
}

/// `xebec volume ls`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print names only.
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// List only volumes that no container uses.
    #[arg(long)]
    pub(crate) unused: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// `xebec volume rm`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The volumes.
    #[arg(required = true, value_name = "VOLUME")]
    pub(crate) names: Vec<String>,
    /// A volume that is not there is no error.
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `xebec volume prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Remove volumes with a name, too.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Accepted for scripts; the command never asks.
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}
