//! A tar stream that `cp` extracts on the host: an error, or files inside of the directory that was named.
#![no_main]

use std::fs;

use xebec_copy::{CopyOptions, Side, copy_from_tar};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let (base, beside) = (directory.path().join("base"), directory.path().join("beside"));
    for made in [&base, &beside] {
        fs::create_dir(made).expect("a directory");
    }
    // A link that is there already leads nobody out.
    std::os::unix::fs::symlink("../beside", base.join("a")).expect("a link");
    let _ = copy_from_tar(bytes, Side::Host(&base), CopyOptions::default(), &mut |_| {});
    assert_eq!(fs::read_dir(&beside).expect("it is there").count(), 0);
    assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 2);
});
