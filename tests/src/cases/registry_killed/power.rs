//! The power goes, again and again: a real ext4 below the registry takes no more writes from one moment to the next, and only what had
//! reached its disk by then is there afterwards.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::client::Worker;
use super::{LATER, Soak};
use crate::cases::power::mount_loop;
use crate::lab::{mount_small, wait_until};
use crate::registry::OwnRegistry;
use crate::world::{World, run};

/// Bytes of the disk.
const DISK: u64 = 256 << 20;
/// How long processes may take to let go of the disk, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Mounts a new disk at the data of the first node.
pub(super) fn new_disk(world: &World) -> Result<()> {
    let data = data(world);
    fs::create_dir_all(&data)?;
    mount_small(&data, DISK)
}

fn data(world: &World) -> PathBuf {
    world.path("node0/data")
}

impl Soak<'_> {
    pub(super) fn cut_again_and_again(
        &self,
        nodes: &mut [OwnRegistry],
        addresses: &[String],
        cuts: u32,
    ) -> Result<()> {
        let (node, address) = nodes.first_mut().zip(addresses.first()).context("no node")?;
        let port = address.rsplit(':').next().unwrap_or_default().parse()?;
        let data = data(self.world);
        for _ in 0..cuts {
            std::thread::sleep(Duration::from_millis(fastrand::u64(LATER)));
            self.model.power(false);
            run(Command::new(World::go_tool("cutpower")?).arg(&data))?;
            node.kill()?;
            let disk = self.disk.lock();
            wait_until(SOON, "nobody uses the disk", || {
                Ok(Command::new("umount").arg(&data).output()?.status.success())
            })?;
            mount_loop(&data.with_extension("ext4"), &data)?;
            drop(disk);
            *node = self.start(0, port)?;
            self.model.power(true);
            self.look(&mut Worker::new(0, &self.model, addresses))?;
        }
        Ok(())
    }
}
