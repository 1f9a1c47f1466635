//! The room that a snapshot takes on disk, as containerd's messages say it.

use xebec_kernel::disk_usage::DiskUsage;

/// Bytes and inodes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Usage {
    /// Bytes, in whole blocks.
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
    /// Inodes, the directory's own among them.
    #[prost(uint64, tag = "2")]
    pub inodes: u64,
}

impl From<DiskUsage> for Usage {
    fn from(usage: DiskUsage) -> Self {
        Self {
            bytes: usage.bytes,
            inodes: usage.inodes,
        }
    }
}
