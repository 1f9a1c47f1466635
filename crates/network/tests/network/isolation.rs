//! Runs a test in namespaces of its own, with a directory for plugins, and a watchdog.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xebec_network::{Places, Wish, new_attachment_id};

/// Set in the inner process: the directory of the case.
const MARK: &str = "XEBEC_TEST_NETWORK";

/// Longer than any case takes.
const WATCHDOG: Duration = Duration::from_secs(120);

/// A directory of a case, in its own namespaces.
pub struct Case {
    pub directory: PathBuf,
}

impl Case {
    pub fn places(&self) -> Places {
        Places::new(&self.directory.join("root"), &self.directory.join("run"))
    }

    /// The wish of a container for this network.
    pub fn wish(&self, container: &str, network: &str) -> Wish {
        let hosts = self.directory.join(format!("{container}.hosts"));
        fs::write(&hosts, "127.0.0.1\tlocalhost\n").unwrap();
        Wish {
            id: new_attachment_id(container).unwrap(),
            container: container.to_owned(),
            network: network.to_owned(),
            names: vec![container.to_owned()],
            hosts,
            ..Wish::default()
        }
    }

    pub fn hosts(&self, container: &str) -> String {
        fs::read_to_string(self.directory.join(format!("{container}.hosts"))).unwrap()
    }

    /// No mount, record or mount point of an attachment is left.
    pub fn assert_clean(&self) {
        let run = self.directory.join("run");
        for directory in ["netns", "networks/attachments"] {
            let left: Vec<_> = fs::read_dir(run.join(directory))
                .into_iter()
                .flatten()
                .flatten()
                .collect();
            assert!(left.is_empty(), "{directory}: {left:?}");
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("nsfs"), "{mounts}");
    }
}

/// Runs `body` isolated. `name` is the full name of the calling test. `plugins` are scripts, by their names.
pub fn isolated(name: &str, plugins: &[(&str, &str)], body: impl FnOnce(&Case)) {
    if let Some(directory) = std::env::var_os(MARK) {
        for (program, arguments) in [
            ("mount", &["-t", "tmpfs", "tmpfs", "/run"][..]),
            ("ip", &["link", "set", "lo", "up"]),
        ] {
            assert!(Command::new(program).args(arguments).status().unwrap().success());
        }
        return body(&Case {
            directory: directory.into(),
        });
    }
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: needs root");
    }
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("plugins");
    fs::create_dir(&programs).unwrap();
    for (plugin, script) in plugins {
        write_script(&programs.join(plugin), script);
    }
    run(name, directory.path(), &programs);
}

fn write_script(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(name: &str, directory: &Path, programs: &Path) {
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["--mount-proc", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(MARK, directory)
        .env("CNI_PATH", programs)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{name}: {status}");
            return;
        }
        if began.elapsed() > WATCHDOG {
            // Its first process goes with it, and all others with that one.
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{name}: ended by the watchdog");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
