//! Which boot of the machine this is: what the page cache held is lost when it changes.

use std::io;

/// Identity of one boot of the machine, as in `/proc/sys/kernel/random/boot_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// The boot that this process runs in.
    ///
    /// # Errors
    /// When `/proc` cannot be read or holds something else.
    pub fn current() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut bytes = [0; 16];
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        if digits.len() != 32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "boot_id is not a UUID",
            ));
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(io::Error::other)?;
            *byte = u8::from_str_radix(pair, 16).map_err(io::Error::other)?;
        }
        Ok(Self(bytes))
    }
}
