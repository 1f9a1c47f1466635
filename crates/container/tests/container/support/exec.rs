//! Commands that join a container of a case, each in a process of its own.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use xebec_container::{Directories, ExecOptions, ExitCode, Record, exec, list};

use super::terminal::OnTerminal;
use super::{Case, Run, Running};

/// The test that joins a container, in a process of its own.
const JOINER: &str = "support::exec::exec_process";

/// The environment variable with the path of its orders.
const ORDERS: &str = "XEBEC_TEST_EXEC_ORDERS";

/// Not a test: with orders it joins the container and ends with the command's exit code.
#[test]
fn exec_process() {
    let Some(path) = std::env::var_os(ORDERS) else {
        return;
    };
    let orders: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let text = |key: &str| orders[key].as_str().map(str::to_owned);
    let dirs = Directories {
        state: text("state").unwrap().into(),
        run: text("run").unwrap().into(),
    };
    let mut report = File::create(text("report").unwrap()).unwrap();
    let record: Record = serde_json::from_value(orders["record"].clone()).unwrap();
    let options = ExecOptions {
        command: serde_json::from_value(orders["command"].clone()).unwrap(),
        env: serde_json::from_value(orders["env"].clone()).unwrap_or_default(),
        workdir: text("workdir"),
        user: text("user"),
        interactive: orders["interactive"] == true,
        tty: orders["tty"] == true,
        screen: xebec_container::Screen::default(),
        detach: orders["detach"] == true,
    };
    let code = exec(&record, &options, &dirs).unwrap_or_else(|error| {
        for line in error.to_string().lines() {
            writeln!(report, "error {line}").unwrap();
        }
        error.exit_code()
    });
    let ExitCode(code) = code;
    std::process::exit(code.into());
}

impl Case {
    /// The record of a container that runs.
    pub fn record(&self, id: &str) -> Record {
        let found = list(&self.dirs().run).unwrap().records;
        found.into_iter().find(|record| record.id == id).unwrap()
    }

    /// Runs a command of the shell in the container, and waits for its end.
    pub fn exec(&mut self, record: &Record, script: &str, options: serde_json::Value) -> Run {
        self.start_exec(record, &["/bin/sh", "-c", script], options)
            .finish()
    }

    pub fn start_exec(&mut self, record: &Record, command: &[&str], options: serde_json::Value) -> Running {
        let command = self.joiner(record, command, options);
        self.spawn(command)
    }

    pub fn exec_on_terminal(
        &mut self,
        record: &Record,
        script: &str,
        options: serde_json::Value,
    ) -> OnTerminal {
        let command = self.joiner(record, &["/bin/sh", "-c", script], options);
        self.spawn_on_terminal(command, 40, 132)
    }

    fn joiner(&mut self, record: &Record, command: &[&str], mut orders: serde_json::Value) -> Command {
        self.runs += 1;
        orders["state"] = serde_json::json!(self.state());
        orders["run"] = serde_json::json!(self.dirs().run);
        orders["report"] = serde_json::json!(self.report());
        orders["record"] = serde_json::to_value(record).unwrap();
        orders["command"] = serde_json::json!(command);
        let path = self.directory.path().join(format!("exec-{}", self.runs));
        fs::write(&path, orders.to_string()).unwrap();
        let mut joiner = Command::new(std::env::current_exe().unwrap());
        joiner
            .args(["--exact", JOINER, "--nocapture", "--quiet"])
            .env(ORDERS, path);
        joiner
    }
}
