//! A reader that waits for bytes of a guarded file.

use xebec_kernel::file::FileIdentity;

/// A reader waits for bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the event; it tells events apart in logs.
    pub serial: u64,
    /// The process that reads.
    pub pid: i32,
    /// Which file; `None` when the worker that read the event died before it looked. The range must then be
    /// filled in *every* guarded file that is not complete, before the event is allowed.
    pub file: Option<FileIdentity>,
    /// First byte wanted.
    pub offset: u64,
    /// Number of bytes wanted.
    pub count: u64,
    /// How many workers died while they filled it.
    pub deaths: u32,
    /// When its reader began to wait, for [`xebec_kernel::journal::waited_since`].
    pub since: u64,
}
