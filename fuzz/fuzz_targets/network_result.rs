//! The output of a CNI plugin, the kernel's files about the host's network, and `/etc/hosts` of a container: the noted values are
//! addresses, a message is a line, and a container's own lines stay.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    xebec_network::fuzzing::plugin_output(bytes);
    xebec_network::fuzzing::container_hosts(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        xebec_network::fuzzing::host_files(text);
    }
});
