//! Installing on a directory that stands for a host: twice, after changes of its owner, and taken back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod docker;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use xebec_install::plan::Plan;
use xebec_install::{Options, removal, setup};

const CONFIG: &str = "etc/containerd/config.toml";

struct Host {
    top: tempfile::TempDir,
    options: Options,
}

impl Host {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let program = top.path().join("downloaded");
        fs::write(&program, "a program").unwrap();
        let sysroot = top.path().join("host");
        fs::create_dir(&sysroot).unwrap();
        let options = Options {
            sysroot,
            program,
            root: "/var/lib/xebec".into(),
            run: "/run/xebec".into(),
            containerd: Some(Path::new("/").join(CONFIG)),
            docker: None,
            is_default: true,
            restart_containerd: false,
        };
        Self { top, options }
    }

    fn with_config(text: &str) -> Self {
        let host = Self::new();
        host.write(CONFIG, text);
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.options.sysroot.join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn carry_out(&self, plan: &Plan) {
        plan.carry_out(&self.options.sysroot, &mut |_| ()).unwrap();
    }

    fn install(&self) {
        self.carry_out(&setup(&self.options).unwrap());
    }

    fn remove(&self) -> Vec<String> {
        let plan = removal(&self.options).unwrap();
        self.carry_out(&plan);
        plan.notes
    }

    /// Every file and what is in it.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.options.sysroot.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => drop(files.insert(path.clone(), fs::read(path).unwrap())),
                }
            }
        }
        files
    }
}

#[test]
fn a_second_time_changes_nothing_and_removal_leaves_what_was() {
    for config in ["version = 2\n", "version = 3\n[plugins]\n# mine\n", ""] {
        let host = Host::with_config(config);
        let before = host.files();
        host.install();
        let installed = host.files();
        assert!(host.read("var/lib/xebec/daemon.toml").contains("enabled = true"));
        assert!(
            host.read("etc/systemd/system/xebec.service")
                .contains("ExecStart=/usr/local/bin/xebec ")
        );
        let mode = fs::metadata(host.path("usr/local/bin/xebec"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
        let again = setup(&host.options).unwrap();
        assert!(again.is_done(), "{again:?}");
        host.carry_out(&again);
        assert_eq!(host.files(), installed);
        host.remove();
        let mut after = host.files();
        if config.is_empty() {
            // A file that was empty has its version now.
            assert_eq!(after.remove(&host.path(CONFIG)).unwrap(), b"version = 3\n");
            after.insert(host.path(CONFIG), Vec::new());
        }
        assert_eq!(after, before, "{config:?}");
    }
}

#[test]
fn a_host_without_containerd_gets_a_configuration_that_goes_again() {
    let host = Host::new();
    host.install();
    assert!(host.read(CONFIG).starts_with("version = 3\n"));
    host.remove();
    assert_eq!(host.files(), BTreeMap::new());
}

#[test]
fn an_old_containerd_gets_a_configuration_that_it_reads() {
    let host = Host::new();
    host.write(
        "usr/bin/containerd",
        "... github.com/containerd/containerd/services ...",
    );
    host.install();
    let text = host.read(CONFIG);
    assert!(text.starts_with("version = 2\n"), "{text}");
    assert!(
        text.contains("[plugins.\"io.containerd.grpc.v1.cri\".containerd]"),
        "{text}"
    );
    host.write(
        "usr/bin/containerd",
        "... github.com/containerd/containerd/v2/core ...",
    );
    fs::remove_file(host.path(CONFIG)).unwrap();
    host.install();
    assert!(host.read(CONFIG).starts_with("version = 3\n"));
}

/// A daemon of this host that says nothing: this process, which has the lock of its run directory until this is dropped.
fn run_silent_daemon(host: &Host) -> File {
    let run = host.path("run/xebec");
    fs::create_dir_all(&run).unwrap();
    let lock = File::create(run.join("daemon.lock")).unwrap();
    lock.lock().unwrap();
    host.write("run/xebec/keeper.pid", &format!("{}\n", std::process::id()));
    lock
}

/// A daemon of this host, as far as it says what runs on its views: one of two layers, of which so many are complete. It has
/// ended when the lock is dropped; its socket listens on, as a service manager's does.
fn run_daemon(host: &Host, images: &[(&str, usize)]) -> File {
    let lock = run_silent_daemon(host);
    let run = host.path("run/xebec");
    let socket = run.join("xebec.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let views = images.iter().map(|(reference, complete)| {
        serde_json::json!({"view": "v", "path": "/v", "reference": reference, "holders": [],
                           "layers": 2, "complete_layers": complete})
    });
    let status = serde_json::json!({
        "reply": "status", "version": "0", "keeper_pid": 1, "worker_pid": 1, "restarts": 0, "keepers": 1,
        "journal_version": 1, "queue": 0, "views": views.collect::<Vec<_>>(), "suspects": [],
        "counters": xebec_protocol::wire::Counters::default(),
    });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            assert!(request.contains("status"), "{request}");
            writeln!(stream, "{status}").unwrap();
        }
    });
    lock
}

#[test]
fn the_program_of_a_daemon_that_runs_goes_when_that_has_ended() {
    let host = Host::with_config("version = 3\n");
    let before = host.files();
    host.install();
    let lock = run_daemon(&host, &[("example/part:1", 1), ("example/whole:1", 2)]);
    let notes = host.remove().join("\n");
    let program = host.path("usr/local/bin/xebec");
    assert!(program.exists(), "nothing is left to stop the daemon: {notes}");
    assert_eq!(host.read(CONFIG), "version = 3\n");
    assert!(!host.path("etc/systemd/system/xebec.service").exists());
    for words in [
        "not complete here",
        "example/part:1",
        "`/usr/local/bin/xebec daemon stop`",
        "`/usr/local/bin/xebec install --uninstall`",
        "crictl rmi",
    ] {
        assert!(notes.contains(words), "{words} is missing: {notes}");
    }
    assert!(!notes.contains("example/whole:1"), "{notes}");
    assert!(removal(&host.options).unwrap().is_done());
    drop(lock);
    // A process that connects to the socket of a service that was stopped starts it.
    let connected = host.path("run/xebec/xebec.sock");
    let notes = host.remove().join("\n");
    assert!(!notes.contains("daemon"), "{notes}");
    fs::remove_dir_all(connected.parent().unwrap()).unwrap();
    assert_eq!(host.files(), before);
}

#[test]
fn the_program_of_a_daemon_that_does_not_answer_stays_too() {
    let host = Host::with_config("version = 3\n");
    host.install();
    let _lock = run_silent_daemon(&host);
    let notes = host.remove().join("\n");
    assert!(host.path("usr/local/bin/xebec").exists(), "{notes}");
    assert!(notes.contains("`/usr/local/bin/xebec daemon stop`"), "{notes}");
    // It ended in order; what a service manager keeps for the next has the lock still.
    fs::remove_file(host.path("run/xebec/keeper.pid")).unwrap();
    host.remove();
    assert!(!host.path("usr/local/bin/xebec").exists());
}

#[test]
fn containerd_is_restarted_on_request_when_it_has_its_configuration_again() {
    let mut host = Host::with_config("version = 3\n");
    host.install();
    fs::create_dir_all(host.path("run/systemd/system")).unwrap();
    let restarts = |host: &Host| {
        let plan = removal(&host.options).unwrap();
        serde_json::to_string(&plan)
            .unwrap()
            .contains("restart\",\"containerd.service")
    };
    assert!(!restarts(&host));
    host.options.restart_containerd = true;
    assert!(restarts(&host));
}

#[test]
fn what_the_owner_changed_stays() {
    let host = Host::with_config("version = 3\n");
    host.install();
    let service = "etc/systemd/system/xebec.service";
    host.write(service, "mine");
    let text = host
        .read(CONFIG)
        .replace("/run/xebec/snapshots.sock", "/elsewhere.sock");
    host.write(CONFIG, &text);
    let notes = host.remove().join("\n");
    assert_eq!(host.read(service), "mine");
    assert!(host.read(CONFIG).contains("/elsewhere.sock"));
    assert!(notes.contains("xebec.service was changed since"), "{notes}");
    assert!(
        notes.contains("proxy_plugins.xebec.address was changed since"),
        "{notes}"
    );
}

#[test]
fn what_a_package_brings_later_is_not_hidden() {
    let host = Host::with_config("version = 3\n");
    host.install();
    host.write("usr/lib/systemd/system/xebec.service", "packaged");
    host.install();
    assert!(!host.path("etc/systemd/system/xebec.service").exists());
    assert!(!host.path("usr/local/bin/xebec").exists());
    assert!(setup(&host.options).unwrap().is_done());
    host.remove();
    assert_eq!(host.read(CONFIG), "version = 3\n");
}

#[test]
fn a_file_of_the_older_version_says_all_that_a_newer_containerd_needs() {
    let host = Host::with_config("version = 2\n");
    host.write(
        "usr/bin/containerd",
        "... github.com/containerd/containerd/v2/core ...",
    );
    host.install();
    let text = host.read(CONFIG);
    assert!(text.contains("unpack_config"), "{text}");
    assert!(text.contains("io.containerd.grpc.v1.cri"), "{text}");
    let host = Host::with_config("version = 2\n");
    host.install();
    assert!(!host.read(CONFIG).contains("unpack_config"));
}

#[test]
fn links_permissions_and_owners_stay() {
    let host = Host::with_config("");
    let real = host.path("data/containerd.toml");
    host.write("data/containerd.toml", "version = 3\n");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(host.path(CONFIG)).unwrap();
    // As the host sees it, not as this process does.
    std::os::unix::fs::symlink("/data/containerd.toml", host.path(CONFIG)).unwrap();
    host.install();
    assert!(host.path(CONFIG).is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("xebec"));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!Path::new("/data/containerd.toml").exists());
}

#[test]
fn what_a_package_brought_is_not_written_again() {
    let host = Host::with_config("version = 3\n");
    host.write("usr/lib/systemd/system/xebec.service", "packaged");
    host.install();
    assert!(!host.path("etc/systemd/system/xebec.service").exists());
}

#[test]
fn bad_configurations_are_named_and_nothing_is_changed() {
    for (text, expected) in [
        ("root = '/x'\n", "config migrate"),
        ("version = 9\n", "none of 2, 3 and 4"),
        ("version = 3\nplugins = 1\n", "plugins is no table"),
        ("version = = 3\n", "is not TOML"),
        ("{{ template \"base\" . }}\n", "by hand"),
    ] {
        let host = Host::with_config(text);
        let before = host.files();
        let failure = setup(&host.options).unwrap_err().to_string();
        assert!(failure.contains(expected), "{failure}");
        assert!(failure.contains("config.toml"), "{failure}");
        assert_eq!(host.files(), before);
    }
}

#[test]
fn paths_that_lead_nowhere_are_named_and_nothing_is_made() {
    let host = Host::with_config("version = 3\n");
    let before = host.files();
    for (name, change) in [
        (
            "/nowhere",
            (|options| options.docker = Some(PathBuf::from("/nowhere/file"))) as fn(&mut Options),
        ),
        ("/nowhere", |options| {
            options.containerd = Some(PathBuf::from("/nowhere/file"))
        }),
        ("gone", |options| options.sysroot.push("gone")),
    ] {
        let mut options = host.options.clone();
        change(&mut options);
        let failure = setup(&options).unwrap_err().to_string();
        assert!(failure.contains(name), "{failure}");
        assert_eq!(host.files(), before);
    }
    // Nothing was installed there, but nothing can have been.
    let mut options = host.options.clone();
    options.sysroot.push("gone");
    let failure = removal(&options).unwrap_err().to_string();
    assert!(failure.contains("gone is no directory"), "{failure}");
}

#[test]
fn a_directory_that_the_daemon_would_refuse_is_refused_before() {
    let host = Host::with_config("version = 3\n");
    for name in ["var/lib/xebec/photo.jpg", "run/xebec/photo.jpg"] {
        host.write(name, "mine");
        let before = host.files();
        let failure = setup(&host.options).unwrap_err().to_string();
        let directory = Path::new(name).parent().unwrap();
        assert!(failure.contains(&directory.display().to_string()), "{failure}");
        assert_eq!(host.files(), before);
        fs::remove_file(host.path(name)).unwrap();
    }
    setup(&host.options).unwrap();
}

#[test]
fn a_file_that_is_imported_and_wins_is_named() {
    let config = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let host = Host::with_config(config);
    fs::create_dir_all(host.path("etc/containerd/conf.d")).unwrap();
    let drop_in = |name: &str, snapshotter: &str| {
        let text =
            format!("version = 3\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = '{snapshotter}'\n");
        fs::write(host.path("etc/containerd/conf.d").join(name), text).unwrap();
    };
    // A file that nobody imports, and one that says the same.
    drop_in("a.toml.bak", "overlayfs");
    drop_in("a.toml", "xebec");
    setup(&host.options).unwrap();
    drop_in("b.toml", "overlayfs");
    let failure = setup(&host.options).unwrap_err().to_string();
    assert!(failure.contains("/etc/containerd/conf.d/b.toml"), "{failure}");
    assert!(failure.contains("overlayfs"), "{failure}");
    assert_eq!(host.read(CONFIG), config);
    let mut options = host.options.clone();
    options.is_default = false;
    setup(&options).unwrap();
}

#[test]
fn what_an_imported_file_imports_counts_and_circles_end() {
    let host = Host::with_config("version = 2\nimports = ['more/one.toml']\n");
    fs::create_dir_all(host.path("etc/containerd/more")).unwrap();
    let write =
        |name: &str, text: &str| fs::write(host.path("etc/containerd/more").join(name), text).unwrap();
    write(
        "one.toml",
        "version = 2\nimports = ['one.toml', '../config.toml', 'tw?.toml']\n",
    );
    setup(&host.options).unwrap();
    write(
        "two.toml",
        "version = 2\n[proxy_plugins.xebec]\naddress = '/run/old.sock'\n",
    );
    let failure = setup(&host.options).unwrap_err().to_string();
    assert!(
        failure.contains("two.toml") && failure.contains("/run/old.sock"),
        "{failure}"
    );
}

#[test]
fn a_step_that_fails_leaves_what_was_and_can_be_done_again() {
    let host = Host::with_config("version = 3\n");
    // A folder where a file should be.
    fs::create_dir_all(host.path("etc/systemd/system/xebec.socket/x")).unwrap();
    let plan = setup(&host.options).unwrap();
    let failure = plan.carry_out(&host.options.sysroot, &mut |_| ()).unwrap_err();
    assert!(failure.to_string().contains("xebec.socket"), "{failure}");
    assert_eq!(host.read(CONFIG), "version = 3\n");
    // A key that was not set is not reported as somebody's change.
    let removal = removal(&host.options).unwrap();
    assert!(
        !removal.notes.iter().any(|note| note.contains("changed since")),
        "{:?}",
        removal.notes
    );
    fs::remove_dir_all(host.path("etc/systemd/system/xebec.socket")).unwrap();
    host.install();
    assert!(setup(&host.options).unwrap().is_done());
    host.remove();
    assert_eq!(host.read(CONFIG), "version = 3\n");
    assert!(host.top.path().join("downloaded").exists());
}

#[test]
fn the_daemon_is_told_where_containerd_listens_unless_it_knows() {
    let elsewhere = "version = 3\n[grpc]\naddress = \"/run/elsewhere.sock\"\n";
    let usual = "version = 3\n[grpc]\naddress = \"/run/containerd/containerd.sock\"\n";
    for (config, told) in [(elsewhere, "address = \"/run/elsewhere.sock\""), (usual, "")] {
        let host = Host::with_config(config);
        host.install();
        let settings = host.read("var/lib/xebec/daemon.toml");
        assert_eq!(settings.contains("address"), !told.is_empty(), "{settings}");
        assert!(settings.contains(told), "{settings}");
        assert!(setup(&host.options).unwrap().is_done());
    }
    let host = Host::with_config(elsewhere);
    let mine = "[snapshotter]\naddress = \"/run/mine.sock\"\n";
    fs::create_dir_all(host.path("var/lib/xebec")).unwrap();
    fs::write(host.path("var/lib/xebec/daemon.toml"), mine).unwrap();
    host.install();
    assert!(host.read("var/lib/xebec/daemon.toml").starts_with(mine));
    host.remove();
    assert_eq!(host.read("var/lib/xebec/daemon.toml"), mine);
}

#[test]
fn the_daemon_follows_containerd_to_where_it_listens() {
    let config = |socket: &str| format!("version = 3\n[grpc]\naddress = \"{socket}\"\n");
    let (one, other, usual) = (
        "/run/one.sock",
        "/run/other.sock",
        "/run/containerd/containerd.sock",
    );
    let settings = "var/lib/xebec/daemon.toml";
    let host = Host::with_config(&config(one));
    host.install();
    let mut before = one;
    for now in [other, one, usual] {
        fs::write(host.path(CONFIG), host.read(CONFIG).replace(before, now)).unwrap();
        host.install();
        let told = format!("address = \"{now}\"");
        assert!(host.read(settings).contains(&told), "{}", host.read(settings));
        assert!(setup(&host.options).unwrap().is_done());
        before = now;
    }
    host.remove();
    assert_eq!(host.read(CONFIG), config(usual));
    let left = fs::read_to_string(host.path(settings)).unwrap_or_default();
    assert!(!left.contains("address"), "{left}");

    // Not where somebody else says it since.
    let host = Host::with_config(&config(one));
    host.install();
    let mine = host.read(settings).replace(one, "/run/mine.sock");
    fs::write(host.path(settings), &mine).unwrap();
    fs::write(host.path(CONFIG), host.read(CONFIG).replace(one, other)).unwrap();
    host.install();
    assert_eq!(host.read(settings), mine);
}
