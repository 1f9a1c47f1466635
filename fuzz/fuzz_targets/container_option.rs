//! Options of the command line that confine a container, one a line, and files of variables: limits are no zeros, names lead to no other
//! file, and an accepted option reads the same once printed.
#![no_main]

use xebec_confinement::{
    Capability, CpuSet, Cpus, Device, MemorySwap, PidsLimit, SecurityOption, Sysctl, Ulimit,
};
use xebec_container::{RestartPolicy, read_env_file};
use xebec_volume::Tmpfs;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match read_env_file(bytes, |_| Some(String::new())) {
        Ok(variables) => {
            assert!(variables.iter().all(|(name, value)| is_variable(name, value)));
        }
        Err(error) => assert!(error.line <= 1 + bytes.iter().filter(|&&byte| byte == b'\n').count()),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        text.lines().for_each(option);
    }
});

fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\n']) && !value.contains('\n')
}

fn option(text: &str) {
    if let Ok(cpus) = text.parse::<Cpus>() {
        let shown = cpus.to_string();
        assert_eq!(shown.parse::<Cpus>().ok(), Some(cpus), "{shown}");
    }
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string(), text);
    }
    if let Ok(PidsLimit(Some(limit))) = text.parse() {
        assert!(limit > 0);
    }
    if let Ok(policy) = text.parse::<RestartPolicy>() {
        assert_eq!(policy.to_string().parse::<RestartPolicy>().ok(), Some(policy));
    }
    if let Ok(sysctl) = text.parse::<Sysctl>() {
        assert!(!sysctl.name.contains(['/', ' ', '\0']) && !sysctl.name.contains(".."));
    }
    if let Ok(SecurityOption::Label { part, .. }) = text.parse() {
        assert!(part < 4);
    }
    if let Ok(tmpfs) = text.parse::<Tmpfs>() {
        assert!(tmpfs.target.is_absolute() && tmpfs.target.parent().is_some());
    }
    let _ = (
        text.parse::<Capability>(),
        text.parse::<Device>(),
        text.parse::<MemorySwap>(),
        text.parse::<Ulimit>(),
    );
}
