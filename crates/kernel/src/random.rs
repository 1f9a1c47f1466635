//! Random names.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A name of so many random bytes, each as two hexadecimal digits in lower case. Six bytes are enough for names that are compared
/// with few others.
///
/// # Errors
/// If the kernel gives no random bytes.
pub fn random_name(bytes: usize) -> io::Result<String> {
    let mut random = vec![0_u8; bytes];
    let mut filled = 0;
    // A signal may interrupt a long request.
    while let Some(rest) = random.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += getrandom(rest, GetRandomFlags::empty())?;
    }
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_two_digits_for_a_byte_and_differ() {
        for bytes in [0, 6, 32, 300] {
            let name = random_name(bytes).unwrap();
            assert_eq!(name.len(), 2 * bytes);
            assert!(
                name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
                "{name}"
            );
        }
        assert_ne!(random_name(6).unwrap(), random_name(6).unwrap());
    }
}
