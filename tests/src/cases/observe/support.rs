//! Helpers that cases of observation share.

use std::fs;

use anyhow::Result;

use crate::lab::{Lab, contents};

/// Size of the files that are read: one span or two.
pub(super) const FILE: usize = 1 << 20;

pub(super) fn content(number: usize) -> Vec<u8> {
    contents(60 + number as u64, FILE)
}

pub(super) fn settings(lab: &Lab<'_>, root: &str, daemon: &str) -> Result<()> {
    fs::create_dir_all(lab.path(root))?;
    fs::write(lab.path(root).join("daemon.toml"), daemon)?;
    Ok(())
}
