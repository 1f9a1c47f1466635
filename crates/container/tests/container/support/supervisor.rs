//! The supervisor of a case: a process that runs one container, and reports into the case's directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use xebec_confinement::ConfinementError;
use xebec_container::{
    self, Again, Directories, Event, Identity, ImageConfig, Prepared, RunError, RunOptions,
};
use xebec_kernel::size::Bytes;
use xebec_volume::Mount;

use super::ORDERS;

/// Not a test: with orders it runs the container and ends with its exit code. Without orders it does nothing.
#[test]
fn supervisor_process() {
    let Some(path) = std::env::var_os(ORDERS) else {
        return;
    };
    let text = fs::read_to_string(path).unwrap();
    let orders: serde_json::Value = serde_json::from_str(&text).unwrap();
    let directory = Path::new(orders["directory"].as_str().unwrap()).to_owned();
    let dirs = Directories {
        state: orders["state"].as_str().unwrap().into(),
        run: orders["run"].as_str().unwrap().into(),
    };
    let mut report = File::create(orders["report"].as_str().unwrap()).unwrap();
    let outcome = run(&orders, &directory, &dirs, &mut report);
    let code = match outcome {
        Ok(code) => code,
        Err(error) => {
            for line in error.to_string().lines() {
                writeln!(report, "error {line}").unwrap();
            }
            error.exit_code()
        }
    };
    std::process::exit(code.0.into());
}

fn run(
    orders: &serde_json::Value,
    directory: &Path,
    dirs: &Directories,
    report: &mut File,
) -> Result<xebec_container::ExitCode, RunError> {
    let image: ImageConfig = serde_json::from_str(orders["image"].as_str().unwrap()).unwrap();
    let options = options(orders)?;
    let wait = all(orders).find(|(key, _)| *key == "image_after_ms");
    let wait = wait.map_or(Duration::ZERO, |(_, ms)| {
        Duration::from_millis(ms.parse().unwrap())
    });
    let predicted = Prediction::of(orders, &directory.join("view"));
    let (prepared, ()) = Prepared::begin(&options, dirs, move |notifier| {
        if let Some(predicted) = predicted {
            notifier.notify(predicted.image, predicted.user);
        }
        thread::sleep(wait);
    })?;
    let view = all(orders).find(|(key, _)| *key == "view");
    let view = view.map_or("view", |(_, name)| name);
    prepared.run(&directory.join(view), &image, &mut |event| {
        let line = match event {
            Event::Mounted { .. } => "mounted".to_owned(),
            Event::Created { .. } => "created".to_owned(),
            Event::Started => "started".to_owned(),
            Event::Kept => return,
            Event::Ready { after } => {
                writeln!(report, "ready_ms {}", after.as_millis()).unwrap();
                "ready".to_owned()
            }
            Event::Exited { code } => format!("exited {}", code.0),
        };
        writeln!(report, "event {line}").unwrap();
    })
}

/// The image's configuration and user as they are predicted before the image is there, unless the case predicts
/// others.
struct Prediction {
    image: ImageConfig,
    user: Option<Identity>,
}

impl Prediction {
    fn of(orders: &serde_json::Value, view: &Path) -> Option<Self> {
        let order = |wanted: &str| all(orders).find(|(key, _)| *key == wanted).map(|(_, text)| text);
        let image = match order("predicted_image") {
            Some("none") => return None,
            Some(image) => image,
            None => orders["image"].as_str().unwrap(),
        };
        let config: serde_json::Value = serde_json::from_str(image).unwrap();
        let user = match order("predicted_user") {
            Some("none") => None,
            Some(user) => Some(Identity::remembered(user).unwrap()),
            None => Identity::of(view, config["User"].as_str().unwrap_or_default()).ok(),
        };
        Some(Self {
            image: serde_json::from_value(config).unwrap(),
            user,
        })
    }
}

fn all(orders: &serde_json::Value) -> impl Iterator<Item = (&str, &str)> {
    let orders = orders["orders"].as_array().unwrap().iter();
    orders.map(|order| (order[0].as_str().unwrap(), order[1].as_str().unwrap()))
}

fn size(text: &str) -> Result<Bytes, ConfinementError> {
    Ok(text.parse()?)
}

fn options(orders: &serde_json::Value) -> Result<RunOptions, RunError> {
    let mut options = RunOptions {
        image: "test/image:1".into(),
        ..RunOptions::default()
    };
    for (key, value) in all(orders) {
        let milliseconds = || Duration::from_millis(value.parse().unwrap());
        match key {
            "id" => options.id = Some(value.into()),
            "command" => options.command = serde_json::from_str(value).unwrap(),
            "env" => options.env.extend(
                value
                    .split_once('=')
                    .map(|(name, value)| (name.into(), value.into())),
            ),
            "user" => options.user = Some(value.into()),
            "hostname" => options.hostname = Some(value.into()),
            "runtime" => options.runtime = Some(value.into()),
            "volume" => options.volumes.push(value.parse()?),
            "mount" => match value.parse()? {
                Mount::Volume(volume) => options.volumes.push(volume),
                Mount::Tmpfs(tmpfs) => options.tmpfs.push(tmpfs),
            },
            "pid" => options.pid = value.parse()?,
            "ipc" => options.ipc = value.parse()?,
            "init" => options.init = Some(value.into()),
            "group_add" => options.group_add.push(value.into()),
            "device" => options.confinement.devices.push(value.parse()?),
            "sysctl" => options.confinement.sysctls.push(value.parse()?),
            "oom_score_adj" => options.confinement.oom_score_adj = Some(value.parse().unwrap()),
            "cpu_shares" => options.confinement.cpu_shares = Some(value.parse().unwrap()),
            "cpuset_cpus" => options.confinement.cpuset_cpus = Some(value.parse()?),
            "net" => options.net = value.parse()?,
            "cap_add" => options.confinement.cap_add.push(value.parse()?),
            "cap_drop" => options.confinement.cap_drop.push(value.parse()?),
            "security" => options.confinement.security.push(value.parse()?),
            "read_only" => options.confinement.read_only = true,
            "tmpfs" => options.tmpfs.push(value.parse()?),
            "memory" => options.confinement.memory = Some(size(value)?),
            "cpus" => options.confinement.cpus = Some(value.parse()?),
            "pids" => options.confinement.pids_limit = Some(value.parse()?),
            "shm_size" => options.confinement.shm_size = Some(size(value)?),
            "ulimit" => options.confinement.ulimits.push(value.parse()?),
            "probe" => options.probes.push(value.parse().unwrap()),
            "probe_timeout_ms" => options.probe_timeout = milliseconds(),
            "stop_timeout_ms" => options.stop_timeout = milliseconds(),
            "rm" => options.rm = true,
            "tty" => options.tty = true,
            "interactive" => options.interactive = true,
            "detached" => options.detached = Some(serde_json::from_str(value).unwrap()),
            "again" => options.again = Again::ByUser,
            "by_policy" => options.again = Again::ByPolicy,
            "restart" => options.restart = value.parse()?,
            "stop_signal" => options.stop_signal = Some(value.parse().unwrap()),
            "caller" => options.caller = value.into(),
            "exit_on_ready" => options.exit_on_ready = true,
            "image_after_ms" | "predicted_image" | "predicted_user" | "view" => {}
            other => panic!("no such order: {other}"),
        }
    }
    Ok(options)
}
