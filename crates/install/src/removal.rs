//! The plan of taking everything back that was installed.

use std::collections::BTreeSet;
use std::path::Path;

use xebec_keeper::client::{Found, find};
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::Status;

use crate::Options;
use crate::docker;
use crate::keys::{self, Change, Wanted};
use crate::plan::{Action, Contents, Plan, digest_of_file};
use crate::record::Record;

/// Finds what is to be done so that a host is as before. A file or key that somebody changed since is left, and noted. Images and
/// containers stay in the state directory. While a daemon runs its program stays, because nothing else can stop it; a later removal takes
/// that, too.
///
/// # Errors
/// When the host's root directory is not there, or a file of the host cannot be read.
pub fn removal(options: &Options) -> Result<Plan, Failure> {
    options.check_sysroot()?;
    let mut plan = Plan::default();
    let record = Record::read(&options.here(&options.record_file()))?;
    if record.is_empty() {
        plan.notes
            .push("nothing was installed by `xebec install` on this host".to_owned());
        return Ok(plan);
    }
    let program = options.installed_program();
    let daemon = find(&options.here(&options.run));
    let runs = !matches!(daemon, Found::Nothing);
    let mut left = Record::default();
    let mut is_containerd_changed = false;
    for (file, changes) in &record.keys {
        let was_made = record.made.contains(file);
        let is_changed = take_back(options, file, changes, was_made, &mut plan)?;
        is_containerd_changed |= is_changed && options.containerd.as_ref() == Some(file);
    }
    for change in &record.docker {
        docker::take_back(options, change, &mut plan)?;
    }
    let kept = runs.then_some(&*program);
    let units = remove_files(options, &record, kept, &mut left, &mut plan);
    if options.has_systemd() && !units.is_empty() {
        disable(&units, &mut plan);
    }
    let is_left = !left.is_empty();
    write_record(options, &left, &record, &mut plan)?;
    if is_containerd_changed {
        tell_containerd(options, &mut plan);
    }
    if options.here(&options.root.join("logins.json")).exists() {
        plan.notes.push(format!(
            "logins of the kubelet's pulls are in {}: remove it when nothing runs on lazy images any more",
            options.root.join("logins.json").display()
        ));
    }
    plan.notes.push(format!(
        "images and containers stay in {}",
        options.root.display()
    ));
    if let Found::Running(status) = &daemon {
        note_incomplete(status, &mut plan);
    }
    if runs {
        note_daemon(&program, is_left, &mut plan);
    }
    Ok(plan)
}

/// Removes the files that were installed and are as they were, but for `kept`, which is left for a later time. Gives the units
/// among them.
fn remove_files(
    options: &Options,
    record: &Record,
    kept: Option<&Path>,
    left: &mut Record,
    plan: &mut Plan,
) -> Vec<String> {
    let mut units = Vec::new();
    for (file, digest) in &record.files {
        let Ok(there) = digest_of_file(&options.here(file)) else {
            continue;
        };
        if there != *digest {
            let note = format!("{} was changed since, and stays", file.display());
            plan.notes.push(note);
            continue;
        }
        if kept == Some(file) {
            left.files.insert(file.clone(), *digest);
            continue;
        }
        if file
            .extension()
            .is_some_and(|extension| extension == "service" || extension == "socket")
        {
            units.extend(file.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        plan.push(Action::Remove { path: file.clone() }, "it was installed", false);
    }
    units
}

/// Files go before commands, so the units are disabled by name; those that run are stopped.
fn disable(units: &[String], plan: &mut Plan) {
    let mut disable = vec!["systemctl", "disable", "--now"];
    disable.extend(units.iter().map(String::as_str));
    plan.run(&disable, "no daemon starts any more", false, false);
    plan.run(
        &["systemctl", "daemon-reload"],
        "systemd forgets the units",
        false,
        false,
    );
}

/// Writes down what is left to be removed, or removes the record.
fn write_record(options: &Options, left: &Record, before: &Record, plan: &mut Plan) -> Result<(), Failure> {
    let path = options.record_file();
    if left.is_empty() {
        plan.push(Action::Remove { path }, "nothing of it is left", false);
        return Ok(());
    }
    let action = Action::Write {
        path,
        contents: Contents::Bytes(left.to_bytes()?),
        mode: 0o600,
        lines: Vec::new(),
    };
    plan.push(action, "the program is left to be removed", left == before);
    Ok(())
}

/// Has containerd read its configuration, if that is wanted, and says what holds of it then.
fn tell_containerd(options: &Options, plan: &mut Plan) {
    match options.restart_containerd && options.has_systemd() {
        true => plan.run(
            &["systemctl", "restart", "containerd.service"],
            "containerd reads its configuration; containers go on",
            true,
            false,
        ),
        false => plan.notes.push(
            "containerd still has the snapshotter until it is restarted: systemctl restart containerd"
                .to_owned(),
        ),
    }
    plan.notes.push(
        "a restarted containerd cannot remove containers that it made on lazy images, since it does not know their snapshotter \
         any more: remove them before; or install again, remove them, and uninstall"
            .to_owned(),
    );
    plan.notes.push(
        "containerd has no layers of images that it pulled lazily: unless such an image is pulled again, its new containers \
         fail with \"content digest ...: not found\"; `crictl rmi` removes it, and the next pull brings it whole"
            .to_owned(),
    );
}

/// Which images are not complete and are read.
fn note_incomplete(status: &Status, plan: &mut Plan) {
    let parts = status
        .views
        .iter()
        .filter(|view| view.complete_layers < view.layers);
    let parts: BTreeSet<&str> = parts.map(|view| view.reference.as_str()).collect();
    if !parts.is_empty() {
        let names: Vec<&str> = parts.into_iter().collect();
        plan.notes.push(format!(
            "containers run on images that are not complete here, and that the daemon goes on fetching for them: {}",
            names.join(", ")
        ));
    }
}

/// Adds a note about a daemon that goes on.
fn note_daemon(program: &Path, is_program_left: bool, plan: &mut Plan) {
    let program = program.display();
    let mut note = format!(
        "containers on lazy images need the daemon, which still runs: stop them, then `{program} daemon stop`"
    );
    if is_program_left {
        note += &format!("; after that `{program} install --uninstall` removes the program, too");
    }
    plan.notes.push(note);
}

fn take_back(
    options: &Options,
    file: &Path,
    changes: &[Change],
    was_made: bool,
    plan: &mut Plan,
) -> Result<bool, Failure> {
    if !options.here(file).exists() {
        return Ok(false);
    }
    let (_, mut document) = options.read_toml(file)?;
    let mut lines = Vec::new();
    for change in changes.iter().rev() {
        let name = keys::dotted(&change.key);
        match keys::undo(&mut document, change) {
            true => lines.push(match (&change.ours, &change.before) {
                (Wanted::Among(_), _) => format!("{name} -= {}", change.ours),
                (_, Some(before)) => format!("{name} = {before}"),
                (_, None) => format!("{name} goes"),
            }),
            // An installation that was interrupted has not come to it.
            false if keys::is_as_before(&mut document, change) => {}
            false => plan
                .notes
                .push(format!("{}: {name} was changed since, and stays", file.display())),
        }
    }
    let why = "it was set by the installation";
    let is_bare = document.iter().all(|(name, _)| name == "version");
    if was_made && is_bare {
        plan.push(
            Action::Remove {
                path: file.to_owned(),
            },
            why,
            false,
        );
        return Ok(true);
    }
    let is_done = lines.is_empty();
    let action = Action::Write {
        path: file.to_owned(),
        contents: Contents::Bytes(document.to_string().into_bytes()),
        mode: 0o644,
        lines,
    };
    plan.push(action, why, is_done);
    Ok(!is_done)
}
