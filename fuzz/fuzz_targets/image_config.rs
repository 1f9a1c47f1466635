//! The image configuration, read twice for two purposes: both accept the same documents where both look, and what they
//! take from them agrees.
#![no_main]

use xebec_container::ImageConfig as ForRunning;
use xebec_oci::ImageConfig;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = ImageConfig::parse(bytes);
    let for_running = ForRunning::from_blob(bytes);
    if let (Ok(whole), Ok(for_running)) = (whole, for_running) {
        assert_eq!(whole.config.user, for_running.user);
        assert_eq!(whole.config.env, for_running.env);
        assert_eq!(whole.config.cmd, for_running.cmd);
        assert_eq!(whole.config.entrypoint, for_running.entrypoint);
        if let Some(platform) = whole.platform() {
            assert!(!platform.os.is_empty() && !platform.architecture.is_empty());
        }
    }
});
