//! Findings of `xebec doctor` on a host where something is wrong.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::Program;

const XEBEC: &str = env!("CARGO_BIN_EXE_xebec");
/// A P-256 public key, of which nobody has the private one.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEHuo7EWhyEDT+QRkVXGd4VUdlo2Ar\n\
    IyOjbaDO3aUmA7FEwO4oRi4DUjXP7nkmu9INH+anbMXVWWycfiLZmrMdMg==\n\
    -----END PUBLIC KEY-----\n";

struct Host {
    program: Program,
    root: PathBuf,
}

impl Host {
    fn new() -> Self {
        let program = Program::new();
        let root = program.root();
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o700)).unwrap();
        Self { program, root }
    }

    /// The doctor's command line for a shell.
    fn command(&self) -> String {
        let (root, run) = (self.root.display(), self.program.run());
        format!("{XEBEC} --root {root} --run {} doctor --json", run.display())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// The exit code, and the finding of that name.
    fn doctor(&self, name: &str) -> (i32, Value) {
        found(&self.program.output(&["doctor", "--json"]), name)
    }

    fn trust(&self, file: &str) {
        let text = format!("[[key]]\nname = \"ci\"\nfile = {file:?}\nrepositories = [\"**\"]\n");
        self.write("trust.toml", &text);
    }
}

fn found(output: &Output, name: &str) -> (i32, Value) {
    println!("{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = report["host"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == name);
    (
        output.status.code().unwrap(),
        finding.cloned().unwrap_or_default(),
    )
}

/// Runs a shell script in a mount namespace of its own; `None` if this user cannot.
pub(crate) fn in_own_namespace(script: &str) -> Option<Output> {
    let unshare = |script: &str| {
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-ec", script])
            .output();
        output.ok()
    };
    if !unshare("mount -t tmpfs none /mnt").is_some_and(|output| output.status.success()) {
        println!("SKIPPED: needs root and unshare(1)");
        return None;
    }
    unshare(script)
}

#[test]
fn a_broken_file_is_named_with_its_error() {
    for (name, text, error) in [
        ("daemon.toml", "cache_sise = \"1GB\"\n", "cache_sise"),
        ("registries.toml", "plain_htp = []\n", "plain_htp"),
        (
            "registries.toml",
            "ca_files = [\"/nowhere/ca.pem\"]\n",
            "/nowhere/ca.pem",
        ),
        ("trust.toml", "registry-root = \"always\"\n", "always"),
        (
            "trust.toml",
            "[[key]]\nname = \"ci\"\nfile = \"gone.pub\"\nrepositories = [\"**\"]\n",
            "gone.pub",
        ),
    ] {
        let host = Host::new();
        host.write(name, text);
        let (code, finding) = host.doctor(name);
        assert_eq!((code, &finding["outcome"]), (125, &json!("missing")), "{finding}");
        assert!(finding["detail"].as_str().unwrap().contains(error), "{finding}");
        assert!(finding["advice"].as_str().unwrap().contains(name), "{finding}");
    }
    let host = Host::new();
    for name in ["daemon.toml", "registries.toml", "trust.toml"] {
        let (_, finding) = host.doctor(name);
        assert_eq!(finding["outcome"], "good", "{finding}");
    }
}

#[test]
fn a_key_that_others_can_change_is_named() {
    let host = Host::new();
    let outside = host.root.parent().unwrap().join("keys");
    fs::create_dir(&outside).unwrap();
    let key = outside.join("ci.pub");
    fs::write(&key, KEY).unwrap();
    host.trust(key.to_str().unwrap());
    let name = "key \"ci\" of trust.toml";
    for (mode, trouble) in [
        (0o644, None),
        (0o600, None),
        (0o664, Some("others may write to")),
        (0o666, Some("others may write to")),
    ] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let (code, finding) = host.doctor(name);
        match trouble {
            None => assert_eq!(finding, Value::Null, "{mode:o}"),
            Some(trouble) => {
                assert_eq!(code, 125);
                assert!(finding["detail"].as_str().unwrap().contains(trouble), "{finding}");
                assert!(
                    finding["advice"].as_str().unwrap().contains("chmod go-w"),
                    "{finding}"
                );
            }
        }
    }
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(&outside, Permissions::from_mode(0o777)).unwrap();
    let (_, finding) = host.doctor(name);
    assert!(
        finding["detail"].as_str().unwrap().contains("is below"),
        "{finding}"
    );
    fs::set_permissions(&outside, Permissions::from_mode(0o755)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&key, Some(65534), None).unwrap();
        let (_, finding) = host.doctor(name);
        assert!(
            finding["detail"]
                .as_str()
                .unwrap()
                .contains("belongs to user 65534"),
            "{finding}"
        );
    }
}

#[test]
fn certificates_that_others_can_change_are_named() {
    let host = Host::new();
    let outside = host.root.parent().unwrap().join("certificates");
    fs::create_dir(&outside).unwrap();
    let file = outside.join("ca.pem");
    fs::write(&file, "").unwrap();
    host.write("registries.toml", &format!("ca_files = [{file:?}]\n"));
    let name = "ca_files of registries.toml";
    for (mode, trouble) in [(0o755, None), (0o777, Some("is below"))] {
        fs::set_permissions(&outside, Permissions::from_mode(mode)).unwrap();
        let (_, finding) = host.doctor(name);
        let detail = finding["detail"].as_str();
        assert_eq!(detail.is_some(), trouble.is_some(), "{finding}");
        assert!(
            trouble.is_none_or(|trouble| detail.unwrap().contains(trouble)),
            "{finding}"
        );
    }
}

/// A user prepares these files before the first command, in a directory that others may read.
#[test]
fn keys_beside_trust_toml_are_no_reason_to_refuse_the_directory() {
    let host = Host::new();
    host.write("ci.pub", KEY);
    host.trust("ci.pub");
    fs::set_permissions(&host.root, Permissions::from_mode(0o755)).unwrap();
    let (_, finding) = host.doctor("trust.toml");
    assert_eq!(finding["outcome"], "good", "{finding}");
    assert!(finding["detail"].as_str().unwrap().contains("1 key"), "{finding}");
    assert_eq!(
        fs::metadata(&host.root).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn a_directory_that_cannot_be_used_is_named_and_the_kernel_is_not_blamed() {
    let host = Host::new();
    fs::write(host.root.join("passwd"), "of others").unwrap();
    let output = host.program.output(&["doctor", "--json"]);
    let (code, finding) = found(&output, "directories");
    assert_eq!((code, &finding["outcome"]), (125, &json!("missing")));
    assert!(
        finding["detail"].as_str().unwrap().contains("as passwd"),
        "{finding}"
    );
    for name in ["pre-content events", "EROFS over files", "overlayfs"] {
        assert_eq!(found(&output, name).1["outcome"], "not_tried");
    }
    let text = String::from_utf8(host.program.output(&["doctor"]).stdout).unwrap();
    assert!(text.contains("not tried: "), "{text}");
    assert!(!text.contains("CONFIG_EROFS_FS"), "{text}");
}

#[test]
fn a_full_and_a_read_only_root_are_named_as_such() {
    let host = Host::new();
    let (root, command) = (host.root.display(), host.command());
    let script = |mount: &str| {
        format!("mount -t tmpfs -o size=64k,mode=0700 none {root}; {mount}; {command} || test $? = 125")
    };
    for (mount, said) in [
        ("true", "is full"),
        (
            &format!("mount -o remount,ro {root}"),
            "is on a read-only file system",
        ),
    ] {
        let Some(output) = in_own_namespace(&script(mount)) else {
            return;
        };
        let (_, finding) = found(&output, "root directory");
        assert_eq!(finding["outcome"], "missing", "{finding}");
        assert!(finding["detail"].as_str().unwrap().ends_with(said), "{finding}");
        let (_, erofs) = found(&output, "EROFS over files");
        assert_eq!(erofs["outcome"], "not_tried", "{erofs}");
    }
}

#[test]
fn a_missing_privilege_is_named_as_such() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root gives up privileges");
        return;
    }
    let host = Host::new();
    let script = format!(
        "exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin {}",
        host.command()
    );
    let output = Command::new("sh").args(["-c", &script]).output();
    let output = output.unwrap();
    if output.status.code() == Some(127) {
        println!("SKIPPED: needs setpriv(1)");
        return;
    }
    let (code, finding) = found(&output, "privilege");
    assert_eq!((code, &finding["outcome"]), (125, &json!("missing")), "{finding}");
    let (_, erofs) = found(&output, "EROFS over files");
    assert_eq!(erofs["outcome"], "not_tried", "{erofs}");
    assert!(
        erofs["detail"].as_str().unwrap().contains("CAP_SYS_ADMIN"),
        "{erofs}"
    );
}

#[test]
fn a_host_without_a_runtime_is_told_what_to_install() {
    let host = Host::new();
    let command = host.command();
    let script = format!(
        "for dir in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin; do for name in runc crun; do \
           if test -e $dir/$name; then mount --bind /dev/null $dir/$name; fi; done; done; \
         export PATH=/usr/bin:/bin; {command} || test $? = 125"
    );
    let Some(output) = in_own_namespace(&script) else {
        return;
    };
    let (_, finding) = found(&output, "container runtime");
    assert_eq!(finding["outcome"], "missing", "{finding}");
    assert!(
        finding["advice"].as_str().unwrap().contains("install"),
        "{finding}"
    );
}

#[test]
fn a_registry_that_stays_silent_is_not_waited_for_longer_than_it_says() {
    let host = Host::new();
    // The kernel takes connections for it, and nobody reads what they send.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let begun = Instant::now();
    let output = host.program.output(&["doctor", "--json", &address]);
    let took = begun.elapsed();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = report["registry_error"].as_str().unwrap();
    assert!(
        said.contains(&address) && said.contains("did not answer within 5 s"),
        "{said}"
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_ne!(output.status.code(), Some(0));
}
