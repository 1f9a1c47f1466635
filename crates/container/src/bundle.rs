//! What a container has on disk, in memory and in the mount table while it lives, and its removal.
//!
//! ```text
//! <state>/<id>/upper         the container's layer
//!              work          scratch directory of overlayfs
//!              remove        there if the directory is to go when the container has ended (--rm)
//! <run>/bundles/<id>/merged  the container's root: mount point of the overlay, perhaps of an automount first (`early`)
//!              config.json   the OCI bundle, with merged as its root; before there is one it leads to a pipe (`early`)
//!              etc/          resolv.conf, hosts and hostname, bound over those of the image
//!              pid           the number of its first process, by the runtime
//!              runtime.log   what the runtime had to say
//! <run>/containers/<id>.json its record: who it is and whose it is
//! ```
//!
//! The bundle is in the run directory, which is in memory on most hosts, because a start should not wait for the disk
//! (`docs/decisions/0015-no-start-waits-for-the-disk.md`): runc waits until the process id is on it
//! (`createPidFile`, `utils_linux.go`), and whoever makes or renames a file there may wait for the journal of the file system.
//!
//! The record is written before anything else and removed after everything else, so whatever a killed process
//! left is found by its record.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use xebec_kernel::mount::automount::DOOR_SOURCE;
use xebec_kernel::mount::{Attributes, Detached, MountInfo, Overlay, Top, mounts};
use xebec_kernel::remove::remove_tree;

use super::control_groups::{self, INTERVAL, ROUNDS};
use super::process::Process;
use super::record::{self, Record};
use super::runtime::Runtime;
use super::security_context::SecurityContext;
use super::spec::{self, SpecInput};
use super::{Directories, Net, RunError, RunOptions};

/// Longest name of a container; also the longest name of a host (`HOST_NAME_MAX`).
const NAME_LIMIT: usize = 64;

/// How long it may take to look at a directory, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// The marker of a directory that goes with its container.
pub(super) const REMOVE_MARKER: &str = "remove";

/// The mount point's name.
pub(super) const MERGED: &str = "merged";

/// The name of the file in which the runtime looks for what it is to make (runtime-spec, `bundle.md`).
pub(super) const CONFIG: &str = "config.json";

/// A container's directories. Dropped, it leaves nothing that it should not.
pub(super) struct Bundle {
    dirs: Directories,
    path: PathBuf,
    /// Of the layer.
    state: PathBuf,
    record: Record,
    runtime: Runtime,
    confined: SecurityContext,
    rm: bool,
    open: bool,
    /// Whether there ever was a container. A layer that nothing could write to is not kept.
    created: bool,
    /// Tells cleaners that know no record of it that the directory is in use.
    lock: Option<OwnedFd>,
}

impl Bundle {
    /// Takes the container's name and makes the directories.
    pub(super) fn claim(
        options: &RunOptions,
        dirs: &Directories,
        runtime: &Runtime,
        confined: SecurityContext,
    ) -> Result<Self, RunError> {
        let id = match &options.id {
            Some(id) if is_name(id) => id.clone(),
            Some(id) => return Err(RunError::Id(id.clone())),
            None => random().map_err(|source| RunError::System {
                doing: "get random bytes for a name",
                source,
            })?,
        };
        let (state, path) = (
            absolute(&dirs.state)?.join(&id),
            absolute(&bundles(&dirs.run))?.join(&id),
        );
        let record = Record {
            image: options.image.clone(),
            runtime: runtime.program().to_owned(),
            rm: options.rm,
            ..Record::new(&id, &state)?
        };
        // One that was kept, and that must not be taken for this one's if this process is killed now.
        if fs::symlink_metadata(&state).is_ok() && !record::file(&dirs.run, &id).exists() {
            return Err(RunError::Exists { id, path: state });
        }
        record.claim(&dirs.run)?;
        let mut bundle = Bundle {
            dirs: dirs.clone(),
            path,
            state,
            record,
            runtime: runtime.clone(),
            confined,
            rm: options.rm,
            open: false,
            created: false,
            lock: None,
        };
        if let Err(error) = bundle.make_directories() {
            // Else the layer is another container's.
            if bundle.lock.is_some() {
                let _ = remove_bundle(&bundle.dirs.run, bundle.id());
                let _ = remove_layer(&bundle.state, true);
            }
            record::remove(&bundle.dirs.run, bundle.id());
            return Err(error);
        }
        bundle.open = true;
        Ok(bundle)
    }

    /// Mounts the overlay on the view of an image. What the container is, is on record with its process.
    pub(super) fn mount(&mut self, view: &Path, process: &Process) -> Result<Detached, RunError> {
        let view = fs::canonicalize(view).map_err(failed("find the image view", view))?;
        let root = self.mount_overlay(&view)?;
        self.record.view = view;
        self.record.set_command(&process.args);
        Ok(root)
    }

    pub(super) fn id(&self) -> &str {
        &self.record.id
    }

    /// Where its control groups are, as `cgroupsPath` has it.
    pub(super) fn control_group(&self) -> String {
        self.record.control_group()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Where the runtime leaves the process id.
    pub(super) fn pid_file(&self) -> PathBuf {
        self.path.join("pid")
    }

    /// Where the runtime sends the terminal. In the run directory, because a socket's path must be short.
    pub(super) fn console_socket(&self) -> PathBuf {
        record::directory(&self.dirs.run).join(format!("{}.tty", self.id()))
    }

    /// Writes down which process the container is.
    pub(super) fn record_pid(&mut self, pid: i32) -> Result<(), RunError> {
        self.created = true;
        self.record.set_pid(pid)?;
        Ok(self.record.save(&self.dirs.run)?)
    }

    /// Writes down that its command was told to run: from here on it can do without its supervisor.
    pub(super) fn record_begun(&mut self) -> Result<(), RunError> {
        self.record.has_begun = Some(true);
        Ok(self.record.save(&self.dirs.run)?)
    }

    fn make_directories(&mut self) -> Result<(), RunError> {
        match fs::create_dir(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RunError::Exists {
                    id: self.id().to_owned(),
                    path: self.state.clone(),
                });
            }
            outcome => outcome.map_err(failed("create", &self.state))?,
        }
        only_for_root(&self.state)?;
        self.lock = Some(record::lock_now(&self.state).map_err(failed("lock", &self.state))?);
        if self.rm {
            let marker = self.state.join(REMOVE_MARKER);
            fs::write(&marker, b"").map_err(failed("write", &marker))?;
        }
        // Whose record has been lost.
        remove_bundle(&self.dirs.run, self.id())?;
        fs::create_dir(&self.path).map_err(failed("create", &self.path))?;
        only_for_root(&self.path)?;
        for (directory, names) in [(&self.state, ["upper", "work"]), (&self.path, [MERGED, "etc"])] {
            for path in names.map(|name| directory.join(name)) {
                fs::create_dir(&path).map_err(failed("create", &path))?;
            }
        }
        Ok(())
    }

    fn mount_overlay(&self, view: &Path) -> Result<Detached, RunError> {
        let upper = self.state.join("upper");
        copy_root_attributes(view, &upper)?;
        let mut overlay = Overlay::new().lower(view).upper(upper, self.state.join("work"));
        if self.rm {
            // The layer may be lost with the power. Without this, unmounting would sync the whole file system
            // that the layer is on.
            overlay = overlay.option("volatile", None);
        }
        if let Some((_, label)) = &self.confined.labels.selinux {
            overlay = overlay.option("context", Some(label));
        }
        let mounted = overlay.mount_at(&self.path.join(MERGED), Attributes::empty());
        mounted.map_err(|source| RunError::Overlay {
            id: self.id().to_owned(),
            source,
        })
    }

    /// Writes `config.json`, which is there as a whole or not at all, and the files it refers to. Gives what is in it.
    pub(super) fn write_spec(&self, process: &Process, options: &RunOptions) -> Result<String, RunError> {
        let hostname = self.hostname(options)?;
        let network_files = self.write_network_files(&hostname, options.net)?;
        let config = spec::config_json(&SpecInput {
            control_group: &self.control_group(),
            process,
            root: &self.path.join(MERGED),
            hostname: &hostname,
            net: options.net,
            terminal: options.tty,
            volumes: &options.volumes,
            network_files: &network_files,
            confinement: &options.confinement,
            confined: &self.confined,
            can_limit_swap: control_groups::can_limit_swap(),
            unified_cgroups: control_groups::are_unified(),
            // Raising one's own limit takes a capability that root need not have.
            open_files_limit: getrlimit(Resource::Nofile).maximum,
        });
        let (text, path) = (config.to_string(), self.path.join(CONFIG));
        let temporary = path.with_extension("new");
        fs::write(&temporary, &text).map_err(failed("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(failed("write", &path))?;
        Ok(text)
    }

    fn hostname(&self, options: &RunOptions) -> Result<String, RunError> {
        match &options.hostname {
            Some(name) if is_hostname(name) => Ok(name.clone()),
            Some(name) => Err(RunError::Hostname(name.clone())),
            None if options.net == Net::Host => {
                let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
                Ok(if name.is_empty() {
                    self.id().to_owned()
                } else {
                    name
                })
            }
            None => Ok(self.id().to_owned()),
        }
    }

    /// On the host's network the host's own files are right, but a container may write to its `/etc`: it gets
    /// copies, as from docker and nerdctl.
    fn write_network_files(
        &self,
        hostname: &str,
        net: Net,
    ) -> Result<Vec<(PathBuf, &'static str)>, RunError> {
        let host = |path: &str| fs::read_to_string(path).ok();
        let loopback =
            || format!("127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
        let hosts = if net == Net::Host {
            host("/etc/hosts")
        } else {
            None
        };
        let files = [
            (
                "resolv.conf",
                "/etc/resolv.conf",
                host("/etc/resolv.conf").unwrap_or_default(),
            ),
            ("hosts", "/etc/hosts", hosts.unwrap_or_else(loopback)),
            ("hostname", "/etc/hostname", format!("{hostname}\n")),
        ];
        let mut written = Vec::new();
        for (name, target, text) in files {
            let path = self.path.join("etc").join(name);
            fs::write(&path, text).map_err(failed("write", &path))?;
            set_mode(&path, 0o644)?;
            written.push((path, target));
        }
        Ok(written)
    }

    /// Ends whatever still runs, unmounts the overlay, removes what is to be removed.
    pub(super) fn close(&mut self) -> Result<(), RunError> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        self.runtime.delete(self.id());
        // Of a container that the runtime has not noted yet. Nobody else would find them.
        control_groups::remove(&self.control_group());
        remove_bundle(&self.dirs.run, self.id())?;
        remove_layer(&self.state, self.rm || !self.created)?;
        // A socket that was never used.
        let _ = fs::remove_file(self.console_socket());
        record::remove(&self.dirs.run, self.id());
        Ok(())
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, id = self.id(), "a container left something behind; the next run tries again");
        }
    }
}

/// Where the bundles are.
fn bundles(run: &Path) -> PathBuf {
    run.join("bundles")
}

/// A directory, which is made if it is not there. The mount table and the runtime want absolute paths.
fn absolute(path: &Path) -> Result<PathBuf, RunError> {
    fs::create_dir_all(path).map_err(failed("create", path))?;
    fs::canonicalize(path).map_err(failed("find", path))
}

/// The containers that have a bundle.
pub(super) fn with_bundles(run: &Path) -> Vec<String> {
    let entries = fs::read_dir(bundles(run)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|id| is_name(id)).collect()
}

/// Unmounts a container's root, and removes its bundle.
pub(super) fn remove_bundle(run: &Path, id: &str) -> Result<(), RunError> {
    let path = bundles(run).join(id);
    leave_root(&path)?;
    removed(&path, remove_all(&path))
}

fn leave_root(directory: &Path) -> Result<(), RunError> {
    let merged = directory.join(MERGED);
    can_be_entered(&merged)?;
    unmount_all(&merged)
}

/// Removes a container's layer, on which nothing is mounted any more, if `all` says so; else only what is of no use without the
/// container.
pub(super) fn remove_layer(path: &Path, all: bool) -> Result<(), RunError> {
    // Once the bundle was in the same directory, and a container may be as old as that.
    leave_root(path)?;
    let outcome = if all {
        remove_all(path)
    } else {
        remove_all(&path.join("work"))
    };
    removed(path, outcome)
}

/// What is gone need not be removed.
fn removed(path: &Path, outcome: io::Result<()>) -> Result<(), RunError> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// A runtime whose container was killed may still write its last words there.
fn remove_all(path: &Path) -> io::Result<()> {
    // Containers have directories: a file or a link in the place of one is somebody else's.
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_dir()) {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // So that nothing is removed beside what an administrator has mounted, which would be left.
    let table = mounts().map_err(io::Error::other)?;
    if let Some(mount) = table.iter().find(|mount| mount.target.starts_with(path)) {
        let what = format!(
            "{} is mounted at {}; unmount it first",
            mount.filesystem,
            mount.target.display()
        );
        return Err(io::Error::other(what));
    }
    for _ in 0..ROUNDS {
        match remove_tree(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => std::thread::sleep(INTERVAL),
            removed => return removed,
        }
    }
    remove_tree(path)
}

/// Whether a container's root can be gone to: as long as somebody waits there for what a killed supervisor will not bring, everybody
/// does ([`xebec_kernel::mount::automount`]).
fn can_be_entered(merged: &Path) -> Result<(), RunError> {
    let (sender, looked) = std::sync::mpsc::channel();
    // Should it not come back, it ends with this process. `statx` would enter.
    let looker = std::thread::Builder::new().spawn({
        let merged = merged.to_owned();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        move || sender.send(rustix::fs::open(merged, flags, Mode::empty()).map(drop))
    });
    if looker.is_err() {
        // Too many processes: it is seldom, and not to be added to what went wrong.
        return Ok(());
    }
    looked.recv_timeout(PATIENCE).map(drop).map_err(|_| {
        let waits = "somebody waits there for what will not come; end that process";
        failed("enter", merged)(io::Error::new(io::ErrorKind::TimedOut, waits))
    })
}

/// Takes the mounts at `target` away, as soon as nobody uses them. A directory on which nothing is mounted is no error. What is
/// no root of a container is somebody else's, and stays.
fn unmount_all(target: &Path) -> Result<(), RunError> {
    while let Some(top) = Top::at(target)? {
        let info = top.info();
        let id = target.parent().and_then(Path::file_name).unwrap_or_default();
        if !is_root_of(&id.to_string_lossy(), info) {
            let what = format!(
                "{} from {} is mounted there, which is not Xebec's; unmount it first",
                info.filesystem,
                info.source.display()
            );
            return Err(failed("clean up", target)(io::Error::other(what)));
        }
        top.detach()?;
    }
    Ok(())
}

/// Whether a mount is the overlay of a container, or the door that its runtime waits at.
fn is_root_of(id: &str, info: &MountInfo) -> bool {
    let options = info.super_options.split_once("upperdir=");
    let upper = options.and_then(|(_, rest)| rest.split_once(",workdir="));
    match info.filesystem.as_str() {
        // A directory whose path is too long for the kernel is given by its descriptor.
        "overlay" => upper.is_some_and(|(upper, _)| {
            upper.ends_with(&format!("/{id}/upper")) || upper.starts_with("/proc/self/fd/")
        }),
        "autofs" => info.source == Path::new(DOOR_SOURCE),
        _ => false,
    }
}

/// The root directory of an overlay shows the attributes of its uppermost layer.
fn copy_root_attributes(view: &Path, upper: &Path) -> Result<(), RunError> {
    use std::os::unix::fs::{MetadataExt, chown};
    let root = fs::metadata(view).map_err(failed("look at the image view", view))?;
    chown(upper, Some(root.uid()), Some(root.gid())).map_err(failed("change the owner of", upper))?;
    set_mode(upper, root.mode() & 0o7777)
}

/// Nobody else may look into a container's layer: it holds setuid files (CVE-2021-41103).
fn only_for_root(path: &Path) -> Result<(), RunError> {
    set_mode(path, 0o700)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), RunError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("set the mode of", path))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_owned();
    move |source| RunError::File { doing, path, source }
}

/// A name that is safe as a file's, as a control group's and for both runtimes.
pub(super) fn is_name(id: &str) -> bool {
    id.len() <= NAME_LIMIT
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn is_hostname(name: &str) -> bool {
    (1..=NAME_LIMIT).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

/// Hexadecimal digits of a random name: as many as docker shows.
pub(super) const RANDOM_DIGITS: usize = 12;

/// A random name.
pub(super) fn random() -> io::Result<String> {
    let mut bytes = [0_u8; RANDOM_DIGITS / 2];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_file_names() {
        for good in ["a", "web-1", "A.b_c-9", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "-a",
            "a/b",
            "../x",
            "a b",
            "a\0",
            "é",
            &"x".repeat(65),
        ] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn random_names_are_names_and_differ() {
        let (one, two) = (random().unwrap_or_default(), random().unwrap_or_default());
        assert!(is_name(&one) && is_name(&two) && one != two);
    }
}
