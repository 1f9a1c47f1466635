//! A disk that loses its power: a real ext4 that takes no more writes from one moment to the next, so that only what had reached it by then
//! is there afterwards.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::cases::power::mount_loop;
use crate::lab::{mount_small, wait_until};
use crate::world::{World, run};

/// Its bytes.
const SIZE: u64 = 256 << 20;
/// How long processes may take to let go of it, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A disk of its own for a directory.
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Mounts a new one.
    pub(super) fn new(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory)?;
        mount_small(&directory, SIZE)?;
        Ok(Self(directory))
    }

    /// Takes the power away.
    pub(super) fn cut(&self) -> Result<()> {
        run(Command::new(World::go_tool("cutpower")?).arg(&self.0)).map(|_| ())
    }

    /// Mounts what is on it, once no process uses it any more.
    pub(super) fn mount_again(&self) -> Result<()> {
        wait_until(SOON, "nobody uses the disk", || {
            Ok(Command::new("umount").arg(&self.0).output()?.status.success())
        })?;
        mount_loop(&self.0.with_extension("ext4"), &self.0)
    }
}
