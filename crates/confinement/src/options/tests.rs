#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn memory_and_swap_go_together() {
    let of = |memory: Option<&str>, swap: Option<&str>| Confinement {
        memory: memory.map(|text| text.parse().unwrap()),
        memory_swap: swap.map(|text| text.parse().unwrap()),
        ..Confinement::default()
    };
    let refused = |memory, swap| of(memory, swap).check(true).unwrap_err().to_string();
    assert!(refused(None, Some("1g")).contains("needs --memory"));
    assert!(refused(Some("5m"), None).contains("at least 6m"));
    assert!(refused(Some("64m"), Some("63m")).contains("at least --memory"));
    let memory = |confinement: &Confinement| confinement.resources(true)["memory"].clone();
    assert_eq!(
        memory(&of(Some("64m"), None)),
        json!({"limit": 64 << 20, "swap": 128 << 20})
    );
    assert_eq!(
        memory(&of(Some("64m"), Some("64m"))),
        json!({"limit": 64 << 20, "swap": 64 << 20})
    );
    assert_eq!(
        memory(&of(Some("64m"), Some("-1"))),
        json!({"limit": 64 << 20, "swap": -1})
    );
    let without = of(Some("64m"), None).resources(false);
    assert_eq!(without["memory"], json!({"limit": 64 << 20}));
}

#[test]
fn processors_and_processes_are_limited() {
    let cpus = |text: &str| text.parse::<Cpus>();
    let confinement = Confinement {
        cpus: Some(cpus("1.5").unwrap()),
        pids_limit: Some("20".parse().unwrap()),
        ..Confinement::default()
    };
    let resources = confinement.resources(true);
    assert_eq!(resources["cpu"], json!({"quota": 150_000, "period": 100_000}));
    assert_eq!(resources["pids"], json!({"limit": 20}));
    for text in ["", "0.001", "-1", "a", "nan"] {
        assert!(cpus(text).is_err(), "{text}");
    }
    for text in ["0", "0.0"] {
        assert!(cpus(text).unwrap().is_unlimited(), "{text}");
    }
    let many = Confinement {
        cpus: Some(cpus("9000").unwrap()),
        ..Confinement::default()
    };
    assert!(many.check(true).unwrap_err().to_string().contains("9000"));
    for text in ["0", "-1"] {
        assert_eq!(text.parse::<PidsLimit>().unwrap(), PidsLimit(None));
    }
    assert!("-2".parse::<PidsLimit>().is_err() && "many".parse::<PidsLimit>().is_err());
    let none = Confinement::default().resources(true);
    assert_eq!(none, json!({"devices": [{"allow": false, "access": "rwm"}]}));
}

#[test]
fn processors_that_the_host_has_not_are_refused_with_those_that_it_has() {
    let set = |text: &str| text.parse::<CpuSet>().unwrap();
    for (asked, there, is_within) in [
        ("0", "0-1", true),
        ("0-1", "0-1", true),
        ("1,3-4", "0-1,3-7", true),
        ("0-9", "0-1", false),
        ("2", "0-1,3-7", false),
    ] {
        assert_eq!(set(asked).is_within(&set(there)), is_within, "{asked} of {there}");
    }
    let of = |text: &str| Confinement {
        cpuset_cpus: Some(set(text)),
        ..Confinement::default()
    };
    let error = of("0-65000").check(true).unwrap_err().to_string();
    assert!(
        error.contains("--cpuset-cpus 0-65000: this host has ") && !error.contains('\n'),
        "{error}"
    );
}

#[test]
fn ulimits_have_names() {
    let json = |text: &str| text.parse::<Ulimit>().map(|limit| limit.to_json());
    let wanted = json!({"type": "RLIMIT_NOFILE", "soft": 10, "hard": 20});
    assert_eq!(json("nofile=10:20").unwrap(), wanted);
    assert_eq!(json("core=-1").unwrap()["hard"], u64::MAX);
    for text in ["nofile", "nofile=", "files=3", "nofile=20:10", "nofile=a", "=1"] {
        assert!(json(text).is_err(), "{text}");
    }
}

#[test]
fn security_options_have_two_notations() {
    use SecurityOption::*;
    let read = |text: &str| text.parse::<SecurityOption>();
    for (text, wanted) in [
        ("no-new-privileges", NoNewPrivileges(true)),
        ("no-new-privileges:true", NoNewPrivileges(true)),
        ("no-new-privileges=false", NoNewPrivileges(false)),
        ("seccomp=unconfined", SeccompUnconfined),
        ("seccomp:unconfined", SeccompUnconfined),
        ("seccomp=/a/b.json", SeccompFile("/a/b.json".into())),
        ("apparmor=mine", AppArmor("mine".into())),
        ("label=disable", LabelDisable),
        (
            "label=type:spc_t",
            Label {
                part: 2,
                value: "spc_t".into(),
            },
        ),
        (
            "label:level:s0:c1,c2",
            Label {
                part: 3,
                value: "s0:c1,c2".into(),
            },
        ),
        ("systempaths=unconfined", SystemPathsUnconfined),
    ] {
        assert_eq!(read(text).unwrap(), wanted, "{text}");
    }
    for text in [
        "",
        "seccomp",
        "seccomp=",
        "label=",
        "label=shape:x",
        "no-new-privileges=2",
        "apparmor=a b",
        "other=1",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}
