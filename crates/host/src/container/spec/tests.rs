use super::super::user::Identity;
use super::*;

fn process(env: &[(&str, &str)]) -> Process {
    Process {
        args: vec!["/bin/server".into(), "-x".into()],
        env: env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        cwd: "/srv".into(),
        identity: Identity {
            uid: 33,
            gid: 34,
            additional: vec![50],
            home: "/".into(),
        },
    }
}

fn input(process: &Process) -> SpecInput<'_> {
    SpecInput {
        id: "box",
        process,
        root: Path::new("/state/box/merged"),
        hostname: "ship",
        net: Net::Host,
        terminal: false,
        volumes: &[],
        network_files: &[],
        unified_cgroups: false,
        open_files_limit: None,
    }
}

/// The whole file as it is. Whoever changes a default changes this, on purpose.
#[test]
fn the_file_is_as_expected() {
    let mut spec = config_json(&input(&process(&[("PATH", "/bin")])));
    let seccomp = spec["linux"]["seccomp"].take();
    assert_eq!(seccomp["defaultAction"], "SCMP_ACT_ALLOW");
    let expected: Value = serde_json::from_str(include_str!("expected.json")).unwrap_or_default();
    assert_eq!(spec, expected, "{spec:#}");
}

#[test]
fn a_network_of_its_own_is_a_namespace() {
    let process = process(&[]);
    let spec = |net, unified_cgroups| {
        config_json(&SpecInput {
            net,
            unified_cgroups,
            ..input(&process)
        })
    };
    let names = |spec: &Value| spec["linux"]["namespaces"].to_string();
    assert!(!names(&spec(Net::Host, false)).contains("network"));
    let alone = spec(Net::None, false);
    assert!(names(&alone).contains("network"));
    assert_eq!(
        alone["linux"]["sysctl"]["net.ipv4.ip_unprivileged_port_start"],
        "0"
    );
    assert!(
        !names(&alone).contains("cgroup"),
        "with control groups of version 1 docker has none either"
    );
    assert!(names(&spec(Net::None, true)).contains("cgroup"));
}

#[test]
fn volumes_come_last_and_in_order() {
    let volume = |source: &str, target: &str, read_only| Volume {
        source: source.into(),
        target: target.into(),
        read_only,
    };
    let spec = config_json(&SpecInput {
        volumes: &[volume("/a", "/etc/hosts", true), volume("/b", "/b/c", false)],
        network_files: &[(PathBuf::from("/state/box/etc/hosts"), "/etc/hosts")],
        ..input(&process(&[]))
    });
    let mounts = spec["mounts"].as_array().cloned().unwrap_or_default();
    let shown = mounts.iter().map(|mount| {
        format!(
            "{}>{} {}",
            mount["source"], mount["destination"], mount["options"][2]
        )
        .replace('"', "")
    });
    let last: Vec<String> = shown.skip(mounts.len().saturating_sub(3)).collect();
    assert_eq!(
        last,
        [
            "/state/box/etc/hosts>/etc/hosts rw",
            "/a>/etc/hosts ro",
            "/b>/b/c rw"
        ]
    );
}

#[test]
fn limits_are_no_higher_than_they_may_be() {
    let limits = |open_files_limit| {
        let spec = config_json(&SpecInput {
            open_files_limit,
            ..input(&process(&[]))
        });
        let limit = &spec["process"]["rlimits"][0];
        (limit["soft"].as_u64(), limit["hard"].as_u64())
    };
    assert_eq!(limits(None), (Some(1024), Some(524_288)));
    assert_eq!(limits(Some(4096)), (Some(1024), Some(4096)));
    assert_eq!(limits(Some(256)), (Some(256), Some(256)));
}

#[test]
fn a_host_name_that_was_set_stays() {
    let env = |env: &[(&str, &str)]| config_json(&input(&process(env)))["process"]["env"].to_string();
    assert_eq!(env(&[]), r#"["HOSTNAME=ship"]"#);
    assert_eq!(env(&[("HOSTNAME", "own")]), r#"["HOSTNAME=own"]"#);
}
