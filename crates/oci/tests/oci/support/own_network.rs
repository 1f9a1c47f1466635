//! Tests in a network namespace of their own, with a file of their own under `/etc`.

use std::process::Command;

/// The network of a test.
pub(crate) struct OwnNetwork<'a> {
    /// The variable that is set in the process that has it.
    pub(crate) marker: &'a str,
    /// A script for the shell, which sets it up. `$0` is a file with `contents`, and `"$@"` what it runs then.
    pub(crate) setup: &'a str,
    pub(crate) contents: &'a str,
    /// Variables of the environment, which has no proxies but those that are here.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

impl OwnNetwork<'_> {
    /// Runs the test, which libtest knows by this name, in it: starts this program again for it.
    pub(crate) fn run(&self, name: &str, test: impl Future<Output = ()>) {
        if std::env::var_os(self.marker).is_some() {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            return runtime.unwrap().block_on(test);
        }
        // Asked for by another name, none would run, and none would fail.
        let runs = std::thread::current().name().map(str::to_owned);
        assert!(runs.is_none_or(|runs| runs == name || runs == "main"));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, self.contents).unwrap();
        let can = Command::new("unshare")
            .args(["--net", "--mount", "true"])
            .status();
        if !can.is_ok_and(|status| status.success()) {
            println!("SKIPPED: no network namespace can be made here");
            return;
        }
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "sh", "-c", self.setup])
            .args([&file, &std::env::current_exe().unwrap()])
            .args(["--exact", name, "--nocapture"])
            .env(self.marker, "1");
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy).env_remove(proxy.to_lowercase());
        }
        let status = command.envs(self.environment.iter().copied()).status().unwrap();
        assert!(status.success(), "{name} failed in its own network");
    }
}
