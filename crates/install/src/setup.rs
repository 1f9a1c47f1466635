//! The plan of installing.

use std::collections::BTreeMap;
use std::path::Path;

use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::settings::USUAL_CONTAINERD;

use crate::containerd::{self, Unpack, Version};
use crate::keys::{self, Change, Key, Wanted};
use crate::plan::{Action, Contents, Plan, digest_of_file};
use crate::record::Record;
use crate::{Options, docker, imports, units};

/// Finds what is to be done so that Xebec runs on a host, and containerd uses it.
///
/// # Errors
/// When a file of the host cannot be read, or is such that nothing may be added to it. Nothing has been changed then.
pub fn setup(options: &Options) -> Result<Plan, Failure> {
    options.check_places()?;
    let mut plan = Plan::default();
    let mut record = Record::read(&options.here(&options.record_file()))?;
    let program = options.installed_program();
    let mut is_new = match options.is_packaged() {
        true => {
            give_way(options, &mut plan, &mut record);
            false
        }
        false => {
            let is_new_program = put_program(options, &program, &mut plan, &mut record)?;
            put_units(options, &program, &mut plan, &mut record) || is_new_program
        }
    };
    let file = options.root.join("daemon.toml");
    if let Some(containerd) = &options.containerd {
        let settings = WantedKeys {
            keys: daemon_keys(options, containerd, &file, &record)?,
            version: None,
            why: "the daemon serves containerd",
        };
        is_new |= set_keys(options, &file, &settings, &mut plan, &mut record)?;
    }
    let is_new_containerd = match &options.containerd {
        Some(file) => set_containerd(options, file, &mut plan, &mut record)?,
        None => false,
    };
    let is_new_docker = match &options.docker {
        Some(file) => docker::set(options, file, &mut plan, &mut record)?,
        None => false,
    };
    let is_new = New {
        daemon: is_new,
        containerd: is_new_containerd,
        docker: is_new_docker,
    };
    run_commands(options, &is_new, &mut plan, &mut record);
    plan.record = Some((options.record_file(), record));
    Ok(plan)
}

/// The keys of the daemon's settings. Containerd's address is that of its configuration, unless the user set another one.
fn daemon_keys(
    options: &Options,
    containerd: &Path,
    settings: &Path,
    record: &Record,
) -> Result<Vec<(Key, Wanted)>, Failure> {
    let key = |name: &str| vec!["snapshotter".to_owned(), name.to_owned()];
    let mut keys = vec![(key("enabled"), Wanted::Switch(true))];
    let (_, document) = options.read_toml(containerd)?;
    let (_, there) = options.read_toml(settings)?;
    let table = there.get("snapshotter");
    let said = table.and_then(|table| table.get("address"));
    let listens = containerd::listens(&document).unwrap_or(USUAL_CONTAINERD);
    let set = record.keys.get(settings).map_or(&[][..], Vec::as_slice);
    let is_ours = |said: &str| {
        let ours = Wanted::Text(said.to_owned());
        set.iter()
            .any(|change| change.key == key("address") && change.ours == ours)
    };
    let is_to_be_said = match said {
        None => listens != USUAL_CONTAINERD,
        Some(said) => said.as_str().is_some_and(is_ours),
    };
    if is_to_be_said {
        keys.push((key("address"), Wanted::Text(listens.to_owned())));
    }
    Ok(keys)
}

/// Removes files that were put here before a package came: systemd would take them for the newer ones.
fn give_way(options: &Options, plan: &mut Plan, record: &mut Record) {
    // Files for Docker come from no package.
    let (stays, goes): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut record.files)
        .into_iter()
        .partition(|(file, _)| docker::is_for_it(file));
    record.files = stays;
    for (file, digest) in goes {
        match digest_of_file(&options.here(&file)) {
            Ok(there) if there == digest => {
                plan.push(Action::Remove { path: file }, "the package brings its own", false);
            }
            Ok(_) => plan.notes.push(format!(
                "{} was changed since it was installed, and hides what the package brings",
                file.display()
            )),
            Err(_) => {}
        }
    }
    if !options.is_program_packaged() {
        plan.notes.push(
            "a package brought xebec to this host, and keeps it up to date; its program stays".to_owned(),
        );
    }
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
    let digest = digest_of_file(&options.program)
        .map_err(|error| Failure::host(format!("read {}", options.program.display()), error))?;
    let is_done = digest_of_file(&options.here(program)).is_ok_and(|there| there == digest);
    record.files.insert(program.to_owned(), digest);
    let contents = Contents::CopyOf {
        file: options.program.clone(),
        digest,
    };
    plan.write(program, contents, 0o755, "the program", is_done);
    Ok(!is_done)
}

fn put_units(options: &Options, program: &Path, plan: &mut Plan, record: &mut Record) -> bool {
    let mut is_new = false;
    for (name, text) in units::units(program, &options.root, &options.run) {
        let path = Path::new("/etc/systemd/system").join(name);
        let is_done = is_so(options, &path, text.as_bytes());
        is_new |= !is_done;
        record.files.insert(path.clone(), Digest::of(text.as_bytes()));
        plan.write(
            &path,
            Contents::Bytes(text.into_bytes()),
            0o644,
            "the service",
            is_done,
        );
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
    let containerd_version = options.containerd_version();
    let version = match is_empty {
        true if containerd_version == Some(1) => Version::Two,
        true => Version::Three,
        false => Version::of(&document).map_err(wrong)?,
    };
    let socket = options.run.join("snapshots.sock");
    imports::check(options, file, &document, version, &socket)?;
    let unpack = Unpack::of(&document, version, containerd_version);
    let wanted = WantedKeys {
        keys: containerd::keys(version, &socket, &options.root, options.is_default, unpack),
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
    let is_ours = file.starts_with(&options.root);
    let action = Action::Write {
        path: file.to_owned(),
        contents: Contents::Bytes(bytes.into_bytes()),
        mode: if is_ours { 0o600 } else { 0o644 },
        lines,
    };
    plan.push(action, wanted.why, is_done);
    Ok(!is_done)
}

/// The parts that change.
struct New {
    daemon: bool,
    containerd: bool,
    docker: bool,
}

/// A command, what it is for, and whether it is due.
type Command = (&'static [&'static str], &'static str, bool);

const RESTART: &str = "restart containerd, which then reads its configuration: containers go on";

/// Without a service manager: what the user is to do.
fn note_commands(options: &Options, new: &New, plan: &mut Plan) {
    let relay = match options.docker {
        Some(_) => {
            ", and `xebec docker-relay` between containerd and Docker, which looks for containerd there"
        }
        None => "",
    };
    plan.notes.push(format!(
        "systemd does not run on this host: start `xebec daemon start` at boot, before containerd{relay}"
    ));
    if new.containerd {
        plan.notes.push(RESTART.to_owned());
    }
}

fn daemon_commands(is_new: bool) -> [Command; 3] {
    [
        (&["systemctl", "daemon-reload"], "systemd reads the units", is_new),
        (
            &[
                "systemctl",
                "enable",
                "--now",
                "xebec.socket",
                "xebec.service",
                "xebec-containers.service",
            ],
            "the daemon runs, now and after a boot, and containers are started again",
            is_new,
        ),
        (
            // The new program takes over from the old one, or the new settings are read; readers wait some milliseconds.
            &["systemctl", "reload", "xebec.service"],
            "a running daemon takes up what is new",
            is_new,
        ),
    ]
}

fn docker_commands(is_new: bool) -> [Command; 3] {
    [
        (
            &["systemctl", "daemon-reload"],
            "systemd reads Docker's units",
            is_new,
        ),
        (
            &["systemd-tmpfiles", "--create", docker::LINK_FILE],
            "the link to containerd is there",
            is_new,
        ),
        (
            &["systemctl", "enable", "--now", docker::UNIT],
            "Docker's way to containerd, now and after a boot",
            is_new,
        ),
    ]
}

/// Has the service manager take up what is new, and what an earlier time did not come to.
fn run_commands(options: &Options, new: &New, plan: &mut Plan, record: &mut Record) {
    let is_new_containerd = new.containerd;
    if !options.has_systemd() {
        return note_commands(options, new, plan);
    }
    let mut commands = daemon_commands(new.daemon).to_vec();
    if options.docker.is_some() {
        commands.extend(docker_commands(new.docker));
    }
    let containerd: Command = (
        &["systemctl", "restart", "containerd.service"],
        "containerd reads its configuration; containers go on",
        is_new_containerd,
    );
    let before = std::mem::take(&mut record.pending);
    let is_due = |words: &[&str], is_new: bool| is_new || before.iter().any(|pending| pending == words);
    let is_restart_due = is_due(containerd.0, containerd.2);
    match options.restart_containerd {
        true => commands.push(containerd),
        // Somebody may have done it since; a later installation that asks for it gets it.
        false if is_restart_due => {
            record
                .pending
                .push(containerd.0.iter().map(|word| (*word).to_owned()).collect());
            if is_new_containerd {
                plan.notes
                    .push(format!("{RESTART} (--restart-containerd does it)"));
            }
        }
        false => {}
    }
    for (words, why, is_new) in commands {
        let is_due = is_due(words, is_new);
        if is_due {
            record
                .pending
                .push(words.iter().map(|word| (*word).to_owned()).collect());
        }
        plan.run(words, why, true, !is_due);
    }
}
