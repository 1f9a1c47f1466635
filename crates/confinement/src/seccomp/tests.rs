use super::*;

fn with(added: &[&str]) -> Capabilities {
    let added: Vec<_> = added.iter().filter_map(|name| name.parse().ok()).collect();
    Capabilities::of(&added, &[], true, Capabilities::ALL)
}

fn rules_for<'a>(profile: &'a Value, name: &str) -> Vec<&'a Value> {
    let rules = profile["syscalls"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let names = |rule: &Value| rule["names"].as_array().cloned().unwrap_or_default();
    rules
        .iter()
        .filter(|rule| names(rule).contains(&json!(name)))
        .collect()
}

#[test]
fn every_namespace_flag_is_one_bit() {
    let all = NAMESPACE_FLAGS.iter().fold(0, |all, flag| all | flag);
    assert_eq!(all, 0x7e02_0000);
    assert!(NAMESPACE_FLAGS.iter().all(|flag| flag.is_power_of_two()));
}

/// Whatever the outer filter lets the runtime do, the inner one refuses its container, unless a capability
/// brings it.
#[test]
fn the_inner_filter_refuses_the_calls_of_the_runtime() {
    let profile = deny_list(with(&[]), false);
    for call in SYSCALLS
        .iter()
        .filter(|call| call.for_runtime && call.name != "chroot")
    {
        assert!(!rules_for(&profile, call.name).is_empty(), "{}", call.name);
    }
    let admin = deny_list(with(&["SYS_ADMIN"]), false);
    for name in ["mount", "clone", "clone3", "unshare", "setns"] {
        assert!(rules_for(&admin, name).is_empty(), "{name}");
    }
    assert!(!rules_for(&admin, "keyctl").is_empty());
    // The runtime takes no rule without names.
    let rules = admin["syscalls"].as_array().cloned().unwrap_or_default();
    assert!(rules.iter().all(|rule| rule["names"] != json!([])));
}

#[test]
fn the_filters_depend_on_the_runtime() {
    let usual = Filters::new(&Filter::Default, with(&[]), true, false);
    assert_eq!(usual.outer.is_some(), cfg!(target_arch = "x86_64"));
    let other = Filters::new(&Filter::Default, with(&[]), false, false);
    assert!(other.outer.is_none());
    assert_eq!(
        other.profile.map(|profile| profile["defaultAction"].clone()),
        Some(json!("SCMP_ACT_ERRNO"))
    );
    let none = Filters::new(&Filter::Unconfined, with(&[]), true, false);
    assert!(none.outer.is_none() && none.profile.is_none());
    let given = Filters::new(&Filter::Custom(json!({"x": 1})), with(&[]), true, false);
    assert!(given.outer.is_none() && given.profile == Some(json!({"x": 1})));
}

#[test]
fn the_list_by_names_allows_only_what_is_on_it() {
    let profile = allow_list(with(&[]), false);
    for name in ["mount", "keyctl", "io_uring_setup", "no_such_call", "bpf"] {
        assert!(rules_for(&profile, name).is_empty(), "{name}");
    }
    for name in ["socket", "socketpair"] {
        assert_eq!(rules_for(&profile, name).len(), FAMILIES.len(), "{name}");
    }
    let calls = |action: &str| {
        let rules = rules_for(&profile, "socketcall").into_iter();
        let rules = rules.filter(|rule| rule["action"] == action);
        rules.map(|rule| rule["args"][0].to_string()).collect::<Vec<_>>()
    };
    let equals = |value: u32| compare(0, "SCMP_CMP_EQ", value.into(), 0).to_string();
    assert_eq!(calls("SCMP_ACT_ERRNO"), [equals(1), equals(8)]);
    let allowed = (2..8)
        .map(equals)
        .chain([compare(0, "SCMP_CMP_GT", 8, 0).to_string()]);
    assert_eq!(calls("SCMP_ACT_ALLOW"), allowed.collect::<Vec<_>>());
    let refused: Vec<_> = rules_for(&profile, "clone3")
        .iter()
        .map(|rule| rule["errnoRet"].clone())
        .collect();
    assert_eq!(refused, [json!(ENOSYS)]);
    assert_eq!(rules_for(&profile, "read").len(), 1);
}

const GIVEN: &str = r#"{
    "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
    "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
                {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []}],
    "syscalls": [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": null, "comment": "a"},
        {"name": "write", "action": "SCMP_ACT_ALLOW"},
        {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
        {"names": ["other"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390x"]}}
    ]}"#;

#[test]
fn a_profile_of_dockers_form_is_read_as_docker_does() {
    let read = |capabilities, kernel| read(GIVEN, capabilities, kernel).unwrap_or_default();
    let has = |profile: &Value, name: &str| !rules_for(profile, name).is_empty();
    let plain = read(with(&[]), (6, 14));
    assert!(
        ["read", "write", "clone", "ptrace"]
            .iter()
            .all(|name| has(&plain, name)),
        "{plain}"
    );
    assert!(
        ["mount", "other"].iter().all(|name| !has(&plain, name)),
        "{plain}"
    );
    assert!(!plain.to_string().contains("comment") && plain.get("archMap").is_none());
    assert_eq!(plain["defaultErrnoRet"], 1);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(
            plain["architectures"],
            json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"])
        );
    }
    let admin = read(with(&["SYS_ADMIN"]), (4, 7));
    assert!(has(&admin, "mount") && !has(&admin, "clone") && !has(&admin, "ptrace"));
}

#[test]
fn an_invalid_profile_is_refused() {
    for text in ["", "[]", "{}", r#"{"defaultAction": "yes"}"#] {
        assert!(read(text, with(&[]), (6, 14)).is_err(), "{text}");
    }
    let nameless = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_ERRNO"}]}"#;
    assert!(read(nameless, with(&[]), (6, 14)).is_err());
    assert!(read(&" ".repeat(2 << 20), with(&[]), (6, 14)).is_err());
}
