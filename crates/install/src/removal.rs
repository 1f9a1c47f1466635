//! The plan of taking everything back that was installed.

use std::path::Path;

use xebec_format::digest::Digest;
use xebec_host::failure::Failure;

use crate::Options;
use crate::docker;
use crate::keys::{self, Change, Wanted};
use crate::plan::{Action, Plan};
use crate::record::Record;

/// Finds what is to be done so that a host is as before. What somebody changed since is left, and noted. Images and
/// containers stay in the state directory.
///
/// # Errors
/// When a file of the host cannot be read.
pub fn removal(options: &Options) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    let record = Record::read(&options.here(&options.record_file()))?;
    if record.is_empty() {
        plan.notes
            .push("nothing was installed by `xebec install` on this host".to_owned());
        return Ok(plan);
    }
    let mut is_containerd_changed = false;
    for (file, changes) in &record.keys {
        let was_made = record.made.contains(file);
        let is_changed = take_back(options, file, changes, was_made, &mut plan)?;
        is_containerd_changed |= is_changed && options.containerd.as_ref() == Some(file);
    }
    for change in &record.docker {
        docker::take_back(options, change, &mut plan)?;
    }
    let mut units = Vec::new();
    for (file, digest) in &record.files {
        let there = std::fs::read(options.here(file)).ok();
        let Some(there) = there else { continue };
        if Digest::of(&there) != *digest {
            let note = format!("{} was changed since, and stays", file.display());
            plan.notes.push(note);
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
    if options.has_systemd() && !units.is_empty() {
        // Files go before commands, so the units are disabled by name; those that run are stopped.
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
    plan.push(
        Action::Remove {
            path: options.record_file(),
        },
        "nothing of it is left",
        false,
    );
    if is_containerd_changed {
        plan.notes.push(
            "containerd still has the snapshotter until it is restarted: systemctl restart containerd"
                .to_owned(),
        );
    }
    if options.here(&options.root.join("logins.json")).exists() {
        plan.notes.push(format!(
            "logins of the kubelet's pulls are in {}: remove it when nothing runs on lazy images any more",
            options.root.join("logins.json").display()
        ));
    }
    let command = match options.is_packaged() {
        true => "`xebec daemon stop --force`",
        false => "`xebec daemon stop --force` of another copy of the program",
    };
    plan.notes.push(format!(
        "images and containers stay in {}; a daemon that runs goes on, for containers on lazy images: when they have ended, \
         {command} ends it",
        options.root.display(),
    ));
    Ok(plan)
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
        bytes: document.to_string().into_bytes(),
        mode: 0o644,
        lines,
    };
    plan.push(action, why, is_done);
    Ok(!is_done)
}
