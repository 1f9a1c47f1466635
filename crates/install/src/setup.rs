//! The plan of installing.

use std::path::Path;

use xebec_format::digest::Digest;
use xebec_host::failure::{Failure, FailureKind};

use crate::containerd::{self, Version};
use crate::keys::{self, Change, Key, Wanted};
use crate::plan::{Action, Plan};
use crate::record::Record;
use crate::{Options, units};

/// Finds what is to be done so that Xebec runs on a host, and containerd uses it.
///
/// # Errors
/// When a file of the host cannot be read, or is such that nothing may be added to it. Nothing has been changed then.
pub fn setup(options: &Options) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    let mut record = Record::read(&options.here(&options.record_file()))?;
    let program = options.installed_program();
    let is_new_program = put_program(options, &program, &mut plan, &mut record)?;
    let are_new_units = put_units(options, &program, &mut plan, &mut record);
    let enabled = vec!["snapshotter".to_owned(), "enabled".to_owned()];
    let settings = WantedKeys {
        keys: vec![(enabled, Wanted::Switch(true))],
        version: None,
        why: "the daemon serves containerd",
    };
    let file = options.root.join("daemon.toml");
    let are_new_settings =
        options.containerd.is_some() && set_keys(options, &file, &settings, &mut plan, &mut record)?;
    let is_new_containerd = match &options.containerd {
        Some(file) => set_containerd(options, file, &mut plan, &mut record)?,
        None => false,
    };
    keep(options, &record, &mut plan)?;
    let changed = is_new_program || are_new_settings;
    start(options, are_new_units, changed, &mut plan);
    finish(options, is_new_containerd, &mut plan);
    Ok(plan)
}

/// The record is written before anything that it tells of.
fn keep(options: &Options, record: &Record, plan: &mut Plan) -> Result<(), Failure> {
    let bytes = serde_json::to_vec_pretty(record).map_err(|error| Failure::new(FailureKind::Host, error))?;
    let path = options.record_file();
    let is_done = is_so(options, &path, &bytes);
    plan.write(
        &path,
        bytes,
        Some(0o600),
        "what was changed, for --uninstall",
        is_done,
    );
    plan.steps.rotate_right(1);
    Ok(())
}

fn is_so(options: &Options, path: &Path, bytes: &[u8]) -> bool {
    std::fs::read(options.here(path)).is_ok_and(|there| there == bytes)
}

fn put_program(
    options: &Options,
    program: &Path,
    plan: &mut Plan,
    record: &mut Record,
) -> Result<bool, Failure> {
    if options.is_whole_host() && options.program == program {
        return Ok(false);
    }
    let bytes = std::fs::read(&options.program)
        .map_err(|error| Failure::host(format!("read {}", options.program.display()), error))?;
    let is_done = is_so(options, program, &bytes);
    record.files.insert(program.to_owned(), Digest::of(&bytes));
    plan.write(program, bytes, Some(0o755), "the program", is_done);
    Ok(!is_done)
}

fn put_units(options: &Options, program: &Path, plan: &mut Plan, record: &mut Record) -> bool {
    if options.is_packaged() {
        return false;
    }
    let mut is_new = false;
    for (name, text) in units::units(program, &options.root, &options.run) {
        let path = Path::new("/etc/systemd/system").join(name);
        let is_done = is_so(options, &path, text.as_bytes());
        is_new |= !is_done;
        record.files.insert(path.clone(), Digest::of(text.as_bytes()));
        plan.write(&path, text.into_bytes(), Some(0o644), "the service", is_done);
    }
    is_new
}

fn set_containerd(
    options: &Options,
    file: &Path,
    plan: &mut Plan,
    record: &mut Record,
) -> Result<bool, Failure> {
    let (text, document) = options.read_toml(file)?;
    let wrong = |error: String| Failure::new(FailureKind::Usage, format_args!("{}: {error}", file.display()));
    let is_empty = text.trim().is_empty();
    let version = match is_empty {
        true if options.has_containerd_1() => Version::Two,
        true => Version::Three,
        false => Version::of(&document).map_err(wrong)?,
    };
    let socket = options.run.join("snapshots.sock");
    let has_unpack = containerd::has_unpack(&document);
    let wanted = WantedKeys {
        keys: containerd::keys(version, &socket, &options.root, options.is_default, has_unpack),
        version: is_empty.then_some(version),
        why: "containerd knows the snapshotter",
    };
    set_keys(options, file, &wanted, plan, record)
}

struct WantedKeys {
    keys: Vec<(Key, Wanted)>,
    /// Version that a new file says.
    version: Option<Version>,
    why: &'static str,
}

/// Sets keys of a file that is the user's.
fn set_keys(
    options: &Options,
    file: &Path,
    wanted: &WantedKeys,
    plan: &mut Plan,
    record: &mut Record,
) -> Result<bool, Failure> {
    let (text, mut document) = options.read_toml(file)?;
    let is_new = !options.here(file).exists();
    if let Some(version) = wanted.version {
        document.insert("version", toml_edit::value(version.number()));
    }
    let mut changes = Vec::new();
    for (key, value) in &wanted.keys {
        let change = keys::set(&mut document, key, value).map_err(|error| {
            let message = format!("{}: {error}", file.display());
            Failure::new(FailureKind::Usage, message)
        })?;
        changes.extend(change);
    }
    let lines = changes.iter().map(Change::to_string).collect();
    let is_done = changes.is_empty();
    let bytes = match is_done {
        true => text,
        false => document.to_string(),
    };
    if is_new && !record.made.iter().any(|made| made == file) {
        record.made.push(file.to_owned());
    }
    record.add_keys(file, changes);
    let action = Action::Write {
        path: file.to_owned(),
        bytes: bytes.into_bytes(),
        mode: is_new.then_some(0o644),
        lines,
    };
    plan.push(action, wanted.why, is_done);
    Ok(!is_done)
}

/// Has the service manager start what is installed.
fn start(options: &Options, are_new_units: bool, changed: bool, plan: &mut Plan) {
    if !options.has_systemd() {
        plan.notes.push(
            "systemd does not run on this host: start `xebec daemon start` at boot, before containerd"
                .to_owned(),
        );
        return;
    }
    let reload = &["systemctl", "daemon-reload"];
    plan.run(reload, "systemd reads the units", true, !are_new_units);
    let enable = &["systemctl", "enable", "--now", "xebec.socket", "xebec.service"];
    let is_done = !are_new_units && !changed;
    plan.run(enable, "the daemon runs, now and after a boot", true, is_done);
    // The new program takes over from the old one, or the new settings are read; readers wait some milliseconds.
    let take_over = &["systemctl", "reload", "xebec.service"];
    plan.run(take_over, "a running daemon takes up what is new", true, is_done);
}

/// What containerd needs after that.
fn finish(options: &Options, is_new: bool, plan: &mut Plan) {
    let restart = &["systemctl", "restart", "containerd.service"];
    if options.restart_containerd && options.has_systemd() {
        plan.run(
            restart,
            "containerd reads its configuration; containers go on",
            true,
            !is_new,
        );
    } else if is_new {
        plan.notes.push(
            "containerd reads its configuration when it is restarted: systemctl restart containerd (containers go on)"
                .to_owned(),
        );
    }
}
