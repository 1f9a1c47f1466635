//! `xebec cp`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use xebec_copy::{ContainerRoot, CopyError, CopyOptions, Note, Side, copy, copy_from_tar, copy_to_tar};
use xebec_kernel::terminal::printable;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::CopyArgs;
use crate::container_lookup::find;

/// How much of a tar stream is written at once: the size of a pipe's buffer.
const STREAM_BUFFER: usize = 64 << 10;

/// A source or a destination as the user wrote it.
#[derive(Debug, PartialEq, Eq)]
enum Spelled<'a> {
    /// A tar stream.
    Stream,
    /// A path of the host.
    Host(&'a Path),
    /// A container's name, and a path in it.
    Container(&'a str, &'a Path),
}

/// A colon before the first slash ends a container's name, as in docker.
fn spelled(text: &str) -> Spelled<'_> {
    if text == "-" {
        return Spelled::Stream;
    }
    match text.split_once(':') {
        Some((name, path)) if !name.is_empty() && !name.starts_with('.') && !name.contains('/') => {
            Spelled::Container(name, Path::new(path))
        }
        _ => Spelled::Host(Path::new(text)),
    }
}

/// The same, found.
enum Found {
    Stream,
    Host(PathBuf),
    Container(ContainerRoot, PathBuf),
}

impl Found {
    fn side(&self) -> Option<Side<'_>> {
        match self {
            Self::Stream => None,
            Self::Host(path) => Some(Side::Host(path)),
            Self::Container(root, path) => Some(Side::Container(root, path)),
        }
    }
}

fn found(paths: &Paths, text: &str) -> Result<Found, Failure> {
    match spelled(text) {
        Spelled::Stream => Ok(Found::Stream),
        Spelled::Host(path) if path.as_os_str().is_empty() => {
            Err(usage("a path is empty; write . for this directory"))
        }
        Spelled::Host(path) => Ok(Found::Host(path.to_owned())),
        Spelled::Container(name, path) if path.as_os_str().is_empty() => Err(usage(format_args!(
            "there is no path after {name}:; write {name}:/ for all of the container"
        ))),
        Spelled::Container(name, path) => Ok(Found::Container(root(paths, name)?, path.to_owned())),
    }
}

fn root(paths: &Paths, name: &str) -> Result<ContainerRoot, Failure> {
    let record = find(paths, name)?;
    let directory = record.open_root();
    Ok(ContainerRoot {
        directory: directory.map_err(|error| Failure::new(FailureKind::Host, error))?,
        name: record.id,
    })
}

fn usage(message: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Usage, message)
}

/// `xebec cp SRC DST`.
pub(crate) fn cp(paths: &Paths, args: &CopyArgs) -> Result<(), Failure> {
    let (from, to) = (found(paths, &args.from)?, found(paths, &args.to)?);
    if !matches!(from, Found::Container(..)) && !matches!(to, Found::Container(..)) {
        return Err(usage(
            "neither path is a container's; write one of them as NAME:PATH",
        ));
    }
    let options = CopyOptions {
        archive: args.archive,
        follow_link: args.follow_link,
    };
    let mut say = |note: Note| {
        let path = printable(&note.path.display().to_string());
        errln!("xebec: left out {path}: {}", note.reason);
    };
    let outcome = match (from.side(), to.side()) {
        (Some(from), Some(to)) => copy(from, to, options, &mut say),
        (Some(_), None) if io::stdout().is_terminal() => {
            return Err(usage(
                "a tar stream would be written to the terminal; redirect it to a file or a pipe",
            ));
        }
        (Some(from), None) => copy_to_tar(from, stdout()?, options, &mut say),
        (None, Some(to)) => copy_from_tar(io::stdin().lock(), to, options, &mut say),
        (None, None) => Ok(()),
    };
    match outcome {
        // The reader of the stream has all that it wants.
        Err(error) if error.is_closed_pipe() => Ok(()),
        outcome => outcome.map_err(failure),
    }
}

/// Standard output as a file: a tar stream has no lines.
fn stdout() -> Result<BufWriter<File>, Failure> {
    let copy = io::stdout().as_fd().try_clone_to_owned();
    let copy = copy.map_err(|error| Failure::host("open standard output", error))?;
    Ok(BufWriter::with_capacity(STREAM_BUFFER, File::from(copy)))
}

fn failure(error: CopyError) -> Failure {
    let kind = match &error {
        CopyError::Missing(_) => FailureKind::NotFound,
        CopyError::NotADirectory(_)
        | CopyError::NoDirectory(_)
        | CopyError::DanglingLink(_)
        | CopyError::IntoItself { .. }
        | CopyError::DirectoryOntoFile { .. } => FailureKind::Usage,
        _ => FailureKind::Host,
    };
    // It names files as the container does.
    Failure::new(kind, printable(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_a_slash_ends_a_name() {
        for (text, wanted) in [
            ("-", Spelled::Stream),
            ("box:/etc", Spelled::Container("box", Path::new("/etc"))),
            ("box:a:b", Spelled::Container("box", Path::new("a:b"))),
            ("box:", Spelled::Container("box", Path::new(""))),
            ("/a:b", Spelled::Host(Path::new("/a:b"))),
            ("./a:b", Spelled::Host(Path::new("./a:b"))),
            ("a/b:c", Spelled::Host(Path::new("a/b:c"))),
            (":a", Spelled::Host(Path::new(":a"))),
            ("./-", Spelled::Host(Path::new("./-"))),
        ] {
            assert_eq!(spelled(text), wanted, "{text}");
        }
    }

    #[test]
    fn names_of_files_reach_no_terminal_as_they_are() {
        let failure = failure(CopyError::Missing("box:/\u{1b}[2Jname".to_owned()));
        assert_eq!(failure.message, "box:/ [2Jname: no such file or directory");
    }
}
