//! The record of a container's attachment to a network: an error that names the file, or the attachment that was asked for.
#![no_main]

use std::fs;
use std::path::Path;

use xebec_network::{Attachment, Places};

const ID: &str = "web-0123456789ab";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let attachments = directory.path().join("networks/attachments");
    fs::create_dir_all(&attachments).expect("a directory");
    fs::write(attachments.join(format!("{ID}.json")), bytes).expect("written");
    match Attachment::read(&Places::new(Path::new("/nowhere"), directory.path()), ID) {
        Ok(attachment) => assert_eq!(attachment.expect("it is there").id, ID),
        Err(error) => assert!(error.to_string().contains(ID), "{error}"),
    }
});
