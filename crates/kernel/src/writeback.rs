//! Bringing files to the disk together. When files are synced one after another, each waits for a commit of the file system's
//! journal. If the contents of all of them are on their way first, one commit, which the first file waits for, is enough for the
//! others too. Ten files in five new directories took 2 ms in place of 6 (ext4 on a loop device).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Begins to bring the data written to a file to the disk, and does not wait. Nothing is durable by that: sync it afterwards
/// (`sync_file_range(2)`).
///
/// # Errors
/// `ESPIPE` for anything but a file, a directory or a block device, and I/O errors.
pub fn begin(file: impl AsFd) -> io::Result<()> {
    let number = file.as_fd().as_raw_fd();
    // SAFETY: it takes four numbers, and the descriptor is borrowed until it returns.
    match unsafe { libc::sync_file_range(number, 0, 0, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_on_its_way_and_a_pipe_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"something").unwrap();
        begin(&file).unwrap();
        begin(fs::File::open("/").unwrap()).unwrap();
        let (pipe, _other) = io::pipe().unwrap();
        assert_eq!(begin(&pipe).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    }
}
