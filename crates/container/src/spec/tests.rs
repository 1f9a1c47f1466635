use std::sync::LazyLock;

use xebec_confinement::seccomp::{Filter, Filters};
use xebec_confinement::{Capabilities, Labels};
use xebec_volume::Volume;

use super::*;
use crate::Identity;

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

static PLAIN: LazyLock<Confinement> = LazyLock::new(Confinement::default);

/// The default settings, on the host's network.
static DEFAULT_SECURITY: LazyLock<SecurityContext> = LazyLock::new(|| {
    let capabilities = Capabilities::of(&[], &[], true, Capabilities::ALL);
    SecurityContext {
        capabilities,
        filters: Filters::new(&Filter::Default, capabilities, true, false),
        ..SecurityContext::default()
    }
});

fn input(process: &Process) -> SpecInput<'_> {
    SpecInput {
        control_group: "/xebec/box",
        process,
        root: Path::new("/state/box/merged"),
        hostname: "ship",
        network: &Namespace::Host,
        pid: &PidMode::Private,
        pid_namespace: None,
        ipc: IpcMode::Private,
        init: None,
        terminal: false,
        volumes: &[],
        tmpfs: &[],
        network_files: &[],
        confinement: &PLAIN,
        security: &DEFAULT_SECURITY,
        can_limit_swap: true,
        unified_cgroups: false,
        open_files_limit: None,
    }
}

/// The whole file as it is. If you change a default, change this, on purpose.
#[test]
fn the_configuration_is_as_expected() {
    let mut spec = config_json(&input(&process(&[("PATH", "/bin")])));
    assert_eq!(spec["annotations"]["dev.xebec.outer-filter"], "allow-list");
    spec.as_object_mut().unwrap().remove("annotations");
    let seccomp = spec["linux"]["seccomp"].take();
    assert_eq!(seccomp["defaultAction"], "SCMP_ACT_ALLOW");
    let expected: Value = serde_json::from_str(include_str!("expected.json")).unwrap_or_default();
    assert_eq!(spec, expected, "{spec:#}");
}

#[test]
fn a_network_of_its_own_is_a_namespace() {
    let process = process(&[]);
    let spec = |network: &Namespace, unified_cgroups| {
        config_json(&SpecInput {
            network,
            unified_cgroups,
            ..input(&process)
        })
    };
    let names = |spec: &Value| spec["linux"]["namespaces"].to_string();
    assert!(!names(&spec(&Namespace::Host, false)).contains("network"));
    let alone = spec(&Namespace::New, false);
    assert!(names(&alone).contains("network"));
    assert_eq!(
        alone["linux"]["sysctl"]["net.ipv4.ip_unprivileged_port_start"],
        "0"
    );
    assert!(
        !names(&alone).contains("cgroup"),
        "with control groups of version 1 docker has none either"
    );
    assert!(names(&spec(&Namespace::New, true)).contains("cgroup"));
    let own = spec(&Namespace::Own("/run/netns/a".into()), false);
    assert!(
        names(&own).contains(r#"{"path":"/run/netns/a","type":"network"}"#),
        "{own}"
    );
    assert_eq!(own["linux"]["sysctl"], alone["linux"]["sysctl"]);
    let shared = spec(&Namespace::Shared("/proc/7/fd/8".into()), false);
    assert!(
        names(&shared).contains("/proc/7/fd/8") && shared["linux"]["sysctl"] == json!({}),
        "{shared}"
    );
}

#[test]
fn volumes_come_last_and_in_the_order_of_their_depth() {
    let volume = |text: &str| {
        let volume: Volume = text.parse().unwrap();
        BindMount::of(&volume, text.split(':').next().unwrap().into())
    };
    let spec = config_json(&SpecInput {
        volumes: &[volume("/deep:/b/c"), volume("/a:/etc/hosts:ro"), volume("/b:/b")],
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
    let last: Vec<String> = shown.skip(mounts.len().saturating_sub(4)).collect();
    assert_eq!(
        last,
        [
            "/b>/b rw",
            "/state/box/etc/hosts>/etc/hosts rw",
            "/deep>/b/c rw",
            "/a>/etc/hosts ro",
        ]
    );
    let propagation = |volumes: &[BindMount]| {
        let process = process(&[]);
        config_json(&SpecInput {
            volumes,
            ..input(&process)
        })["linux"]["rootfsPropagation"]
            .clone()
    };
    assert_eq!(propagation(&[volume("/a:/a")]), Value::Null);
    assert_eq!(propagation(&[volume("/a:/a:rslave")]), "rslave");
    assert_eq!(
        propagation(&[volume("/a:/a:rslave"), volume("/b:/b:shared")]),
        "shared"
    );
}

#[test]
fn the_default_limit_is_not_above_this_processs_own() {
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

#[test]
fn options_are_in_the_configuration() {
    let confinement = Confinement {
        read_only: true,
        memory: "64m".parse().ok(),
        shm_size: "1m".parse().ok(),
        ulimits: ["nproc=5", "nofile=7:8", "nproc=6"]
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
        ..Confinement::default()
    };
    let security = SecurityContext {
        no_new_privileges: true,
        shows_system_paths: true,
        labels: Labels {
            apparmor: Some("some-profile".into()),
            selinux: Some(("its:process".into(), "its:files".into())),
        },
        ..SecurityContext::default()
    };
    let spec = config_json(&SpecInput {
        tmpfs: &["/run:size=8m".parse().unwrap()],
        confinement: &confinement,
        security: &security,
        ..input(&process(&[]))
    });
    assert_eq!(spec["root"]["readonly"], true);
    let mounts = spec["mounts"].as_array().cloned().unwrap_or_default();
    assert_eq!(
        mounts.last().map(|mount| mount["destination"].clone()),
        Some(json!("/run"))
    );
    assert!(spec["mounts"].to_string().contains("size=1048576\""), "{spec:#}");
    assert_eq!(spec["linux"]["resources"]["memory"]["limit"], 64 << 20);
    assert_eq!(
        spec["process"]["rlimits"],
        json!([{"type": "RLIMIT_NOFILE", "soft": 7, "hard": 8}, {"type": "RLIMIT_NPROC", "soft": 6, "hard": 6}])
    );
    assert_eq!(spec["process"]["noNewPrivileges"], true);
    assert_eq!(spec["linux"]["maskedPaths"], json!([]));
    assert_eq!(spec["process"]["apparmorProfile"], "some-profile");
    assert_eq!(spec["process"]["selinuxLabel"], "its:process");
    assert_eq!(spec["linux"]["mountLabel"], "its:files");
    assert!(spec["linux"].get("seccomp").is_none());
    assert_eq!(spec["process"]["capabilities"]["bounding"], json!([]));
    let plain = config_json(&input(&process(&[])));
    assert!(plain["process"].get("apparmorProfile").is_none() && plain["linux"].get("mountLabel").is_none());
}
