//! Docker, which is changed beside containerd and gets back what it had.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use xebec_install::{removal, setup};

use super::Host;

const DOCKER: &str = "etc/docker/daemon.json";

fn with_docker(config: Option<&str>) -> Host {
    let mut host = Host::with_config("version = 3\n");
    host.options.docker = Some(Path::new("/").join(DOCKER));
    if let Some(config) = config {
        host.write(DOCKER, config);
    }
    host
}

fn docker_says(host: &Host) -> serde_json::Value {
    serde_json::from_str(&host.read(DOCKER)).unwrap()
}

#[test]
fn docker_keeps_what_it_was_told_and_gets_it_back_word_for_word() {
    let odd = "{ \"log-driver\":\"journald\",\n\t\"features\": {\"buildkit\": true}, \"storage-driver\": \"overlay2\" }";
    for config in [None, Some(""), Some(odd)] {
        let host = with_docker(config);
        let before = host.files();
        host.install();
        let says = docker_says(&host);
        assert_eq!(says["containerd"], "/run/xebec-docker/containerd.sock");
        assert_eq!(says["storage-driver"], "xebec");
        assert_eq!(says["features"]["containerd-snapshotter"], true);
        if config == Some(odd) {
            assert_eq!(says["log-driver"], "journald");
            assert_eq!(says["features"]["buildkit"], true);
        }
        assert!(
            host.read("etc/systemd/system/xebec-docker.service")
                .contains("/usr/local/bin/xebec docker-relay")
        );
        assert!(
            host.read("etc/tmpfiles.d/xebec-docker.conf")
                .contains("/run/containerd/containerd.sock")
        );
        let again = setup(&host.options).unwrap();
        assert!(again.is_done(), "{again:?}");
        host.remove();
        assert_eq!(host.files(), before, "{config:?}");
    }
}

#[test]
fn what_docker_was_told_since_stays() {
    let host = with_docker(Some(
        "{\"features\": {\"buildkit\": true}, \"storage-driver\": \"overlay2\"}",
    ));
    host.install();
    let mut says = docker_says(&host);
    says["debug"] = true.into();
    says["containerd"] = "/run/mine.sock".into();
    host.write(DOCKER, &says.to_string());
    let notes = host.remove().join("\n");
    assert!(notes.contains("containerd was changed since"), "{notes}");
    let wanted = serde_json::json!({
        "debug": true, "containerd": "/run/mine.sock", "features": {"buildkit": true}, "storage-driver": "overlay2",
    });
    assert_eq!(docker_says(&host), wanted);
}

#[test]
fn what_docker_was_told_between_two_installations_stays() {
    let host = with_docker(Some(
        "{\"storage-driver\": \"overlay2\", \"log-level\": \"warn\"}",
    ));
    host.install();
    let mut says = docker_says(&host);
    says["debug"] = true.into();
    says["storage-driver"] = "btrfs".into();
    host.write(DOCKER, &says.to_string());
    host.install();
    assert_eq!(docker_says(&host)["storage-driver"], "xebec");
    host.remove();
    let wanted = serde_json::json!({"storage-driver": "btrfs", "log-level": "warn", "debug": true});
    assert_eq!(docker_says(&host), wanted);
}

#[test]
fn each_file_of_docker_that_was_changed_is_put_back() {
    let mut host = with_docker(Some("{ \"debug\" : true }"));
    let second = "etc/docker-of-builds/daemon.json";
    host.write(second, "{ \"log-level\" : \"warn\" }");
    let before = host.files();
    host.install();
    host.options.docker = Some(Path::new("/").join(second));
    host.install();
    assert!(host.read(second).contains("\"xebec\""));
    host.remove();
    assert_eq!(host.files(), before);
}

#[test]
fn a_record_of_one_file_of_docker_is_read() {
    let host = with_docker(Some("{ \"debug\" : true }"));
    let before = host.files();
    host.install();
    // As it was written before there could be several.
    let record = "var/lib/xebec/installed.json";
    let mut says: serde_json::Value = serde_json::from_str(&host.read(record)).unwrap();
    if let Some(one) = says["docker"].get(0).cloned() {
        says["docker"] = one;
        says["docker"].as_object_mut().unwrap().remove("is_whole");
    }
    host.write(record, &says.to_string());
    host.remove();
    assert_eq!(host.files(), before);
    fs::create_dir_all(host.path("var/lib/xebec")).unwrap();
    fs::set_permissions(host.path("var/lib/xebec"), fs::Permissions::from_mode(0o700)).unwrap();
    host.write(
        record,
        "{\"files\": {}, \"keys\": {}, \"made\": [], \"docker\": null}",
    );
    assert!(removal(&host.options).is_ok());
}

#[test]
fn an_option_of_dockers_command_line_is_changed_where_it_is() {
    let host = with_docker(None);
    let unit =
        "[Service]\nExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock\n";
    host.write("lib/systemd/system/docker.service", unit);
    let before = host.files();
    host.install();
    // Docker refuses a key that is an option, too.
    assert_eq!(docker_says(&host).get("containerd"), None);
    let drop_in = host.read("etc/systemd/system/docker.service.d/xebec.conf");
    let wanted =
        "ExecStart=\nExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/xebec-docker/containerd.sock\n";
    assert!(drop_in.contains(wanted), "{drop_in}");
    assert!(setup(&host.options).unwrap().is_done());
    host.remove();
    assert_eq!(host.files(), before);
}

#[test]
fn what_an_administrator_says_of_dockers_command_line_is_what_is_changed() {
    let host = with_docker(None);
    let packaged =
        "[Service]\nExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock\n";
    host.write("usr/lib/systemd/system/docker.service", packaged);
    // Hidden by the file of that name in a directory that comes before.
    host.write(
        "usr/lib/systemd/system/docker.service.d/override.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --hidden\n",
    );
    host.write(
        "etc/systemd/system/docker.service.d/override.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd \\\n  --containerd=/run/containerd/containerd.sock \\\n  \
         --tlsverify -H tcp://0.0.0.0:2376\n",
    );
    host.write(
        "usr/local/lib/systemd/system/docker.service.d/zzz.conf",
        "[Service]\nRestartSec=3\n",
    );
    let before = host.files();
    host.install();
    assert_eq!(docker_says(&host).get("containerd"), None);
    let drop_in = host.read("etc/systemd/system/docker.service.d/xebec.conf");
    let command = drop_in.strip_prefix("[Service]\nExecStart=\nExecStart=").unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    let wanted = [
        "/usr/bin/dockerd",
        "--containerd=/run/xebec-docker/containerd.sock",
        "--tlsverify",
        "-H",
        "tcp://0.0.0.0:2376",
    ];
    assert_eq!(words, wanted);
    assert!(setup(&host.options).unwrap().is_done());
    // One without the option needs no drop-in any more, and the key is said.
    host.write(
        "etc/systemd/system/docker.service.d/override.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --tlsverify\n",
    );
    host.install();
    assert!(
        !host
            .path("etc/systemd/system/docker.service.d/xebec.conf")
            .exists()
    );
    assert_eq!(
        docker_says(&host)["containerd"],
        "/run/xebec-docker/containerd.sock"
    );
    assert!(setup(&host.options).unwrap().is_done());
    host.remove();
    host.write(
        "etc/systemd/system/docker.service.d/override.conf",
        &String::from_utf8_lossy(&before[&host.path("etc/systemd/system/docker.service.d/override.conf")]),
    );
    assert_eq!(host.files(), before);
}

#[test]
fn a_command_line_that_is_read_after_ours_is_refused_unless_it_leads_to_the_relay() {
    let host = with_docker(None);
    let unit = "[Service]\nExecStart=/usr/bin/dockerd\n";
    host.write("lib/systemd/system/docker.service", unit);
    let later = "etc/systemd/system/docker.service.d/zz-hosts.conf";
    let said =
        |socket: &str| format!("[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --containerd {socket}\n");
    host.write(later, &said("/run/containerd/containerd.sock"));
    let before = host.files();
    let error = setup(&host.options).unwrap_err().to_string();
    assert!(error.contains("zz-hosts.conf"), "{error}");
    assert_eq!(host.files(), before);
    host.write(later, &said("/run/xebec-docker/containerd.sock"));
    host.install();
    assert_eq!(docker_says(&host).get("containerd"), None);
    assert!(
        !host
            .path("etc/systemd/system/docker.service.d/xebec.conf")
            .exists()
    );
    // A setting that Docker itself refuses is reported before Docker is restarted.
    let host = with_docker(Some("{\"containerd\": \"/run/containerd/containerd.sock\"}"));
    host.write(
        "lib/systemd/system/docker.service",
        &unit.replace(
            "dockerd\n",
            "dockerd --containerd=/run/containerd/containerd.sock\n",
        ),
    );
    let error = setup(&host.options).unwrap_err().to_string();
    assert!(error.contains("its command line"), "{error}");
}

#[test]
fn another_containerd_or_no_json_is_refused_and_nothing_changes() {
    for config in [
        "{\"containerd\": \"/run/other.sock\"}",
        "[]",
        "{",
        "{\"features\": 1}",
    ] {
        let host = with_docker(Some(config));
        let before = host.files();
        setup(&host.options).unwrap_err();
        assert_eq!(host.files(), before, "{config}");
    }
}

#[test]
fn docker_is_set_up_beside_a_package_and_stays_so() {
    let host = with_docker(None);
    host.write("lib/systemd/system/xebec.service", "the package's");
    let before = host.files();
    host.install();
    let installed = host.files();
    let again = setup(&host.options).unwrap();
    assert!(again.is_done(), "{again:?}");
    host.carry_out(&again);
    assert_eq!(host.files(), installed);
    assert!(
        host.read("etc/systemd/system/xebec-docker.service")
            .contains("/usr/bin/xebec docker-relay")
    );
    host.remove();
    assert_eq!(host.files(), before);
}
