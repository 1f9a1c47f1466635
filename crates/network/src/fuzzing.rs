//! Entry points for fuzz targets: each takes arbitrary bytes and panics only when a promise is broken.

use serde_json::Value;

use crate::Addresses;
use crate::host::Host;
use crate::hosts::replaced;
use crate::resolver::servers;
use crate::result::failure;
use crate::subnet::Subnet;

/// The output of a plugin: its result after it succeeded, or an error.
///
/// # Panics
/// When a message has what a terminal acts on, or something is taken for an address that is none.
pub fn plugin_output(bytes: &[u8]) {
    for message in [
        failure(bytes, b"", "exit status 1"),
        failure(b"", bytes, "exit status 1"),
    ] {
        assert!(
            !message.is_empty() && !message.chars().any(char::is_control),
            "{message:?}"
        );
    }
    let Ok(result) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let found = Addresses::of(&result);
    assert_eq!(found.ips().count(), found.addresses.len());
    let texts = found.addresses.iter().chain(&found.gateway).chain(&found.mac);
    for text in texts {
        let is_of_an_address = |byte: u8| byte.is_ascii_hexdigit() || b".:/".contains(&byte);
        assert!(text.bytes().all(is_of_an_address), "{text:?}");
    }
}

/// Files of the kernel and the host's administrator about the host's own network.
///
/// # Panics
/// When a name server that is an address is not counted as taken.
pub fn host_files(text: &str) {
    let host = Host::from_texts(text, text, text);
    for server in servers(text) {
        if let Ok(address) = server.parse() {
            assert!(host.collision(Subnet::around(address, 32)).is_some(), "{server}");
        }
    }
}

/// `/etc/hosts` of a container, which writes there what it likes.
///
/// # Panics
/// When a line of the container is lost that stands before ours, or ours are not there.
pub fn container_hosts(bytes: &[u8]) {
    let lines = "10.4.0.2\tone\n";
    let new = replaced(bytes, lines);
    let has_ours = new.windows(lines.len()).any(|part| part == lines.as_bytes());
    assert!(has_ours);
    // Where there are no marks of ours, everything is the container's.
    assert!(new.starts_with(bytes) || bytes.windows(7).any(|part| part == b"# Xebec"));
}
