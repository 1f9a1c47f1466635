//! Mount namespaces, by numbers that are never used again. The number in the name of `/proc/PID/ns/mnt` is given to another
//! namespace as soon as one is gone, often to the next one.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::ioctl::{Getter, ioctl, opcode};

/// Asks a mount namespace for its number (`include/uapi/linux/nsfs.h`, Linux 6.11).
const NS_GET_MNTNS_ID: u32 = opcode::read::<u64>(0xb7, 5);

/// The number of the mount namespace of a process, whose directory in `/proc` this is.
///
/// # Errors
/// When the process has ended, or may not be looked at.
pub fn mount_namespace(process: &Path) -> io::Result<u64> {
    let namespace = File::open(process.join("ns/mnt"))?;
    // SAFETY: it writes one number of 64 bits (`ns_ioctl`, `fs/nsfs.c`), for which `Getter` has room.
    let number = unsafe { ioctl(&namespace, Getter::<NS_GET_MNTNS_ID, u64>::new()) };
    Ok(number?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_one_namespace_have_one_number() {
        let own = mount_namespace(Path::new("/proc/self")).unwrap();
        let thread = mount_namespace(Path::new("/proc/thread-self")).unwrap();
        assert_eq!(own, thread);
        assert_ne!(own, 0);
        assert!(mount_namespace(Path::new("/proc/0")).is_err());
    }
}
