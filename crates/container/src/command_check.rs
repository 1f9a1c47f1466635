//! Whether a container's command is there, before the runtime is asked to run it.
//!
//! A runtime reports a command that it cannot run on the standard error that the container has, beside its report to Xebec,
//! and once more if it was started early. So mistyped commands are found here, and told once.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{FileType, fstat};
use serde_json::Value;
use xebec_kernel::path::{LastLink, open_in_root_at};

use crate::command_problem::CommandProblem;
use crate::process::Process;
use crate::{RunError, RunOptions};

/// Permission bits of a file that somebody may execute.
const EXECUTABLE: u32 = 0o111;

/// The kind of file at a path in the container's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Executable,
    NotExecutable,
    Directory,
    Nothing,
    /// The runtime will see: there is a link, or the kernel reports something else.
    Unknown,
}

/// Refuses a command that is certainly not in `root`, the container's root directory without its mounts, or
/// certainly cannot be executed.
pub(crate) fn check(root: BorrowedFd<'_>, process: &Process, options: &RunOptions) -> Result<(), RunError> {
    // A mount may bring the command; and with `--init` another program looks for it.
    let is_all = options.volumes.is_empty() && options.tmpfs.is_empty() && options.init.is_none();
    let Some(program) = process.args.first().filter(|_| is_all) else {
        return Ok(());
    };
    let path = process.env.iter().find(|(name, _)| name == "PATH");
    let path = path.map_or("", |(_, path)| path);
    match problem(root, program, &process.cwd, path) {
        None => Ok(()),
        Some(reason) => Err(RunError::Command {
            program: program.clone(),
            reason,
        }),
    }
}

/// Refuses a command that is certainly not in the container `id`, whose root directory with all its mounts is `root`, or
/// certainly cannot be executed. `process` is its `process.json`.
pub(crate) fn check_joining(root: BorrowedFd<'_>, id: &str, process: &Value) -> Result<(), RunError> {
    let Some(program) = process["args"][0].as_str() else {
        return Ok(());
    };
    let variables = process["env"].as_array().into_iter().flatten();
    let path = variables
        .filter_map(Value::as_str)
        .find_map(|variable| variable.strip_prefix("PATH="));
    let cwd = process["cwd"].as_str().unwrap_or("/");
    match problem(root, program, cwd, path.unwrap_or_default()) {
        None => Ok(()),
        Some(reason) => Err(RunError::ExecCommand {
            program: program.to_owned(),
            id: id.to_owned(),
            reason,
        }),
    }
}

/// A certain problem of a program that is looked for in the working directory, or in the directories of `path`.
fn problem(root: BorrowedFd<'_>, program: &str, cwd: &str, path: &str) -> Option<CommandProblem> {
    if program.contains('/') {
        return match look(root, &Path::new(cwd).join(program)) {
            Found::Nothing => Some(CommandProblem::Missing),
            Found::NotExecutable => Some(CommandProblem::NotExecutable),
            Found::Directory => Some(CommandProblem::Directory),
            Found::Executable | Found::Unknown => None,
        };
    }
    // As the runtime does, which passes over files that cannot be executed.
    let is_nowhere = path.split(':').all(|directory| {
        let is_absolute = directory.starts_with('/');
        let found = look(root, &Path::new(directory).join(program));
        is_absolute && !matches!(found, Found::Executable | Found::Unknown)
    });
    is_nowhere.then(|| CommandProblem::NotInPath(path.to_owned()))
}

fn look(root: BorrowedFd<'_>, path: &Path) -> Found {
    let file = match open_in_root_at(root, path, LastLink::Follow) {
        Ok(file) => file,
        Err(error) => {
            let is_missing = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
            // A link may lead to what is there once /proc is mounted.
            let is_link = open_in_root_at(root, path, LastLink::Open).is_ok();
            // Links of /proc, which /dev/fd is one of, lead nowhere for a process of another namespace.
            let is_of_the_kernel = path.starts_with("/proc") || path.starts_with("/dev");
            return match is_missing && !is_link && !is_of_the_kernel {
                true => Found::Nothing,
                false => Found::Unknown,
            };
        }
    };
    let Ok(stat) = fstat(&file) else {
        return Found::Unknown;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Found::Directory,
        FileType::RegularFile if stat.st_mode & EXECUTABLE == 0 => Found::NotExecutable,
        FileType::RegularFile => Found::Executable,
        _ => Found::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::ImageConfig;

    fn problem(
        root: &Path,
        command: &[&str],
        change: impl FnOnce(&mut RunOptions),
    ) -> Option<CommandProblem> {
        let mut options = RunOptions {
            command: command.iter().map(|&word| word.to_owned()).collect(),
            workdir: Some("/srv".into()),
            env: vec![("PATH".into(), "/none:/bin".into())],
            ..RunOptions::default()
        };
        change(&mut options);
        let process = Process::resolve(root, &ImageConfig::default(), &options).unwrap();
        match check(File::open(root).unwrap().as_fd(), &process, &options) {
            Ok(()) => None,
            Err(RunError::Command { reason, .. }) => Some(reason),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_certainly_wrong_is_refused_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for name in ["bin", "srv", "etc"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        for (name, mode) in [("bin/app", 0o755), ("bin/text", 0o644), ("srv/own", 0o700)] {
            fs::write(root.join(name), "").unwrap();
            fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
        }
        symlink("/bin/app", root.join("bin/link")).unwrap();
        symlink("/proc/self/exe", root.join("bin/odd")).unwrap();
        let found = |word: &str| problem(root, &[word], |_| ());
        for fine in [
            "app",
            "/bin/app",
            "link",
            "/bin/link",
            "odd",
            "/bin/odd",
            "./own",
            "../bin/app",
        ] {
            assert_eq!(found(fine), None, "{fine}");
        }
        let nowhere = CommandProblem::NotInPath("/none:/bin".into());
        for (word, wrong) in [
            ("/bin/nosuch", CommandProblem::Missing),
            ("/bin/app/below", CommandProblem::Missing),
            ("./app", CommandProblem::Missing),
            ("nosuch", nowhere.clone()),
            ("text", nowhere),
            ("/bin/text", CommandProblem::NotExecutable),
            ("/etc", CommandProblem::Directory),
        ] {
            assert_eq!(found(word), Some(wrong), "{word}");
        }
        // A mount may bring it.
        let with_volume = problem(root, &["/bin/nosuch"], |options| {
            options.volumes.push("/tmp:/bin".parse().unwrap());
        });
        assert_eq!(with_volume, None);
        let relative = problem(root, &["nosuch"], |options| {
            options.env.push(("PATH".into(), "bin:/bin".into()));
        });
        assert_eq!(relative, None);
    }

    #[test]
    fn what_joins_a_container_is_looked_for_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("bin")).unwrap();
        fs::write(root.join("bin/app"), "").unwrap();
        fs::set_permissions(root.join("bin/app"), Permissions::from_mode(0o755)).unwrap();
        let opened = File::open(root).unwrap();
        let said = |program: &str| {
            let process = serde_json::json!({"args": [program, "-x"], "env": ["A=b", "PATH=/none:/bin"], "cwd": "/bin"});
            let checked = check_joining(opened.as_fd(), "web", &process);
            checked
                .map_err(|error| (error.to_string(), error.exit_code().0))
                .err()
        };
        for fine in ["app", "/bin/app", "./app", "/proc/self/exe", "/dev/fd/3"] {
            assert_eq!(said(fine), None, "{fine}");
        }
        let (missing, code) = said("/nosuch").unwrap();
        assert_eq!(
            (missing.as_str(), code),
            (
                r#"the command "/nosuch" cannot be run in container web: there is no such file"#,
                127
            )
        );
        assert_eq!(said("nosuch").unwrap().1, 127);
        assert_eq!(said("/bin").unwrap().1, 126);
    }
}
