//! `/etc/passwd` and `/etc/group` of an image: an error, or a user and groups with numbers that the kernel takes and a home that is
//! a path.
#![no_main]

use std::fs;

use xebec_container::Identity;

const LARGEST: u32 = i32::MAX as u32;

libfuzzer_sys::fuzz_target!(|files: (&[u8], &[u8])| {
    let Ok(image) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let etc = image.path().join("etc");
    let written = fs::create_dir(&etc)
        .and_then(|()| fs::write(etc.join("passwd"), files.0))
        .and_then(|()| fs::write(etc.join("group"), files.1));
    if written.is_err() {
        return;
    }
    for user in ["", "www", "www:data", "33", "1000:data"] {
        let Ok(found) = Identity::of(image.path(), user) else {
            continue;
        };
        let mut numbers = found.additional.iter().chain([&found.uid, &found.gid]);
        assert!(numbers.all(|&number| number <= LARGEST));
        assert!(found.home.starts_with('/') && !found.home.contains('\n'));
        // An identity that is remembered of a start is taken for the next one, or is looked up again.
        let text = serde_json::to_string(&found).expect("written");
        assert!(Identity::remembered(&text).is_none_or(|again| again == found));
    }
});
