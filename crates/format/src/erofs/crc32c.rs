//! The checksum of the superblock: CRC-32C (Castagnoli, reflected) without the final inversion, as the kernel's
//! `crc32c()` computes it.

const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Continues a checksum over `bytes`; start with `!0`.
pub(super) fn crc32c(mut crc: u32, bytes: &[u8]) -> u32 {
    // Bit by bit: it covers three kilobytes per image.
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(crc & 1));
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn check_value() {
        // The check value of CRC-32C (RFC 3720, B.4, and everywhere else) is that of "123456789", inverted.
        assert_eq!(!super::crc32c(!0, b"123456789"), 0xE306_9283);
    }
}
