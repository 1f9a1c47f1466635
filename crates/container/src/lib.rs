//! Runs a container on a mounted root, by an OCI runtime (`runc` or `crun`).
//!
//! The caller has a *view*: a read-only directory that shows the files of an image. [`run()`] mounts an
//! overlay on it, writes an OCI bundle, has the runtime create and start the container, and returns the
//! container's exit code. A caller that still has to find its image uses [`Prepared`] instead, which starts
//! the runtime at once.
//!
//! The calling process is the container's *supervisor*, and does what a shim does elsewhere: it is the
//! container's parent (a child subreaper), forwards signals, holds the other side of the terminal, watches
//! the readiness probes and collects the exit status.
//!
//! # Isolation and mounts
//!
//! Namespaces, capabilities, mounts, masked paths and the system call filter are those that docker and
//! containerd give by default; the module `spec` has them line by line. Two things differ on purpose. A
//! directory that the image declares as a volume is part of the container's layer. And a `SIGWINCH` that
//! reaches a supervisor without a terminal is not forwarded: nginx and httpd shut down at that signal, and a
//! resized window must not end them.
//!
//! # Promises
//!
//! * [`run()`] unmounts the overlay and deletes the runtime's state, however it ends.
//! * Everything that a container leaves is found by its name or id ([`find`], [`containers`]), and [`remove`] removes it.
//! * A container runs on if its supervisor is killed, and [`list`] shows it. Once it has ended,
//!   [`cleanup_stale`] finds what is left by its [`Record`]. The daemon calls that regularly, and so does
//!   every [`run()`].
//! * Only what is shown to be a container's own is unmounted, removed or killed (`docs/security.md`).
//!
//! # Crates that it may use
//!
//! `kernel`, and the crates that each know one thing of a container: `network`, `volume`, `confinement`, `probe`
//! and `container-log`. It knows neither images nor the daemon: it gets a directory and an [`ImageConfig`].
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | `run` | the steps of a container, from its name to its exit code |
//! | `prediction` | the runtime's `create`, started before the image is known |
//! | `supervisor` | the container's life after `create` |
//! | `bundle`, `layout`, `removal` | a container's files and mounts, and their removal |
//! | `exec`, `running` | a command that joins a container that runs |
//! | `usage`, `top` | what a container uses, and its processes |
//! | `record`, `cleanup`, `other_namespace` | which containers there are, and what killed supervisors left |
//! | `spec`, `process`, `user` | the runtime's configuration |
//! | `command_check` | whether the command is there, before the runtime looks |
//! | `saved`, `saved_run`, `container` | records of containers, and finding them |
//! | `lifecycle`, `restart_policy`, `restore` | what users do to containers that exist; when one is started again |
//! | `held_layer` | a container's layer that is held still while it is read |
//! | `network` | the container's network, and its files in `/etc` that follow from it |
//! | `probe_watch`, `output` | readiness, by the crate `probe` |

mod bundle;
mod cgroup_warm_up;
mod cleanup;
mod command_check;
mod command_problem;
mod container;
mod control_groups;
mod env_file;
mod error;
mod event;
mod exec;
mod exec_fifo;
mod exit_code;
mod frozen_for_commit;
mod held_layer;
mod image_config;
mod init;
mod layout;
mod lifecycle;
mod name;
mod namespaces;
mod network;
mod options;
mod other_namespace;
mod output;
mod prediction;
mod probe_watch;
mod process;
mod record;
mod removal;
mod restart_policy;
mod restore;
mod run;
mod running;
mod runtime;
mod saved;
mod saved_run;
mod screen;
mod signal;
mod signal_watch;
mod spec;
mod stdio;
mod supervisor;
mod supervisor_event;
mod terminal;
mod top;
mod usage;
mod user;

pub use cleanup::cleanup_stale;
pub use command_problem::CommandProblem;
pub use container::{
    Container, Containers, FindError, Status, containers, find, is_stopped, keep_failed_restart,
    pause_before_restart,
};
pub use control_groups::{container_of_cgroup, run_of_cgroup};
pub use env_file::{EnvFileError, read as read_env_file};
pub use error::{RecordError, RunError, RunningError};
pub use event::Event;
pub use exec::exec;
pub use exec::options::ExecOptions;
pub use exit_code::ExitCode;
pub use held_layer::HeldLayer;
pub use image_config::{ImageConfig, ImageConfigError};
pub use layout::Directories;
pub use lifecycle::{
    LifecycleError, Removal, kill_at_once, remove, rename, send_signal, set_paused, stop, wait,
};
pub use namespaces::{IpcMode, PidMode};
pub use network::{Net, NetworkOptions, RecordedNetwork};
pub use options::{Again, RunOptions};
pub use process::command_line;
pub use record::{Record, Running, has_records, list, may_have_orphan};
pub use restart_policy::RestartPolicy;
pub use restore::to_restore;
pub use run::{Prepared, run};
pub use runtime::installed_runtimes;
pub use saved::{Saved, SavedProcess, SavedStatus};
pub use screen::Screen;
pub use signal::{SignalParseError, StopSignal};
pub use spec::SHARED_MEMORY;
pub use supervisor_event::ConfigNotifier;
pub use top::{ProcessInfo, processes};
pub use usage::{Usage, usage};
pub use user::{Identity, UserError};
pub use xebec_probe::{Probe, ProbeParseError};
