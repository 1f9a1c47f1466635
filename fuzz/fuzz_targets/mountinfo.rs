//! The table of mounts: an error, or one mount for each line.
#![no_main]

use xebec_kernel::mount::parse_mountinfo;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let lines = bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .count();
    if let Ok(mounts) = parse_mountinfo(bytes) {
        assert_eq!(mounts.len(), lines);
    }
});
