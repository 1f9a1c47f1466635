//! `xebec install`.

use std::path::Path;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use xebec_install::plan::{Action, Plan, Step};
use xebec_install::{Options, removal, setup};
use xebec_protocol::failure::{Failure, FailureKind};

use crate::args::InstallArgs;
use crate::{runtime, text};

/// Installs, or takes it back, or only prints the changes that it would make.
pub(crate) fn install(root: &Path, run: &Path, args: &InstallArgs) -> Result<(), Failure> {
    let docker = args.docker.as_deref().unwrap_or(root);
    for path in [root, run, &args.containerd, &args.sysroot, docker] {
        if !path.is_absolute() {
            let message = format!("{}: give a path from / on", path.display());
            return Err(Failure::new(FailureKind::Usage, message));
        }
    }
    let program = std::env::current_exe().map_err(|error| Failure::host("find this program", error))?;
    let options = Options {
        sysroot: args.sysroot.clone(),
        program,
        root: root.to_owned(),
        run: run.to_owned(),
        containerd: (!args.no_containerd).then(|| args.containerd.clone()),
        docker: args.docker.clone(),
        is_default: !args.keep_default,
        restart_containerd: args.restart_containerd,
    };
    let plan = match args.uninstall {
        true => removal(&options)?,
        false => setup(&options)?,
    };
    // Before anything is done or printed: a program that reads that Xebec is installed may end this one at once, and half of the steps
    // are no installation.
    let end = args.stay.then(End::expect).transpose()?;
    if !args.dry_run {
        let mut report = |step: &Step| {
            if !args.json {
                print_step(step, false);
            }
        };
        plan.carry_out(&options.sysroot, &mut report)?;
    }
    if args.json {
        text::print_json(&plan)?;
    } else {
        if args.dry_run {
            plan.steps.iter().for_each(|step| print_step(step, true));
        }
        print_notes(&plan);
    }
    if let Some(end) = end {
        end.wait();
    }
    Ok(())
}

/// The signals that end a command which stays. The first process of a container gets no signal that it does not ask for.
struct End {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl End {
    /// Asks for them: from now on they are kept until somebody waits.
    fn expect() -> Result<Self, Failure> {
        let runtime = runtime::start()?;
        let inside = runtime.enter();
        let ask = |kind| signal(kind).map_err(|error| Failure::host("wait for a signal", error));
        let (terminate, interrupt) = (ask(SignalKind::terminate())?, ask(SignalKind::interrupt())?);
        drop(inside);
        Ok(Self {
            runtime,
            terminate,
            interrupt,
        })
    }

    fn wait(mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        });
    }
}

fn print_step(step: &Step, is_dry: bool) {
    let state = match (step.is_done, is_dry) {
        (true, _) => "already so ",
        (false, true) => "would      ",
        (false, false) => "done       ",
    };
    let (what, lines) = match &step.action {
        Action::Write { path, lines, .. } => (format!("write {}", path.display()), lines.as_slice()),
        Action::Remove { path } => (format!("remove {}", path.display()), &[][..]),
        Action::Run { words, .. } => (words.join(" "), &[][..]),
    };
    outln!("{state}{what}: {}", step.why);
    for line in lines {
        outln!("             {line}");
    }
}

fn print_notes(plan: &Plan) {
    if plan.is_done() && !plan.steps.is_empty() {
        outln!("nothing to change");
    }
    for note in &plan.notes {
        outln!("note: {note}");
    }
}
