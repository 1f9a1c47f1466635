//! A line between a command and the daemon: an error, or a request or a reply that is read the same once written.
#![no_main]

use serde::Serialize;
use serde::de::DeserializeOwned;
use xebec_protocol::wire::{Reply, Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    same_again::<Request>(bytes);
    same_again::<Reply>(bytes);
});

fn same_again<Message: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Message>(bytes) else {
        return;
    };
    let written = serde_json::to_vec(&message).expect("written");
    assert!(!written.contains(&b'\n'), "a message is a line");
    let again: Message = serde_json::from_slice(&written).expect("read again");
    assert_eq!(serde_json::to_vec(&again).expect("written"), written);
}
