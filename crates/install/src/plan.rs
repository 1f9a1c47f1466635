//! The steps of installing or removing, found before any of them is carried out.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use xebec_format::digest::{Digest, Digester};
use xebec_kernel::file::{replace_atomically, replace_atomically_by};
use xebec_protocol::failure::Failure;

use crate::record::Record;
use crate::root::resolve;

/// Bytes of a file that are in memory at a time.
pub(crate) const PIECE: usize = 256 << 10;

/// The steps on a host, in order, with notes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Notes about things that people should know or do themselves.
    pub notes: Vec<String>,
    /// The record that is written before the first step, and its path; it is written again after each command.
    #[serde(skip)]
    pub(crate) record: Option<(PathBuf, Record)>,
}

/// One thing to do.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The action, with the file or command that it is about.
    #[serde(flatten)]
    pub action: Action,
    /// The purpose.
    pub why: String,
    /// Whether it is so already, and nothing is done.
    pub is_done: bool,
}

/// The action of a step. Paths are as the host sees them.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Write a file whole; it appears whole, or not.
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The contents of the file.
        #[serde(skip)]
        contents: Contents,
        /// Its permissions, if it is new.
        #[serde(skip)]
        mode: u32,
        /// The lines that change, for people; empty for a file that is ours alone.
        lines: Vec<String>,
    },
    /// Remove a file.
    Remove {
        /// The path of the file.
        path: PathBuf,
    },
    /// Run a command on the host.
    Run {
        /// Program and arguments.
        words: Vec<String>,
        /// Whether everything stops when it fails.
        must_succeed: bool,
    },
}

/// The contents of a file that is written.
#[derive(Clone, Debug)]
pub enum Contents {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The contents of another file, which may be large: it is never in memory as a whole.
    CopyOf {
        /// Which, as this program sees it.
        file: PathBuf,
        /// Its digest when the plan was made; the file must still have it.
        digest: Digest,
    },
}

impl Contents {
    fn write(&self, path: &Path, mode: u32) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => replace_atomically(path, bytes, mode),
            Self::CopyOf { file, digest } => replace_atomically_by(path, mode, |new| {
                let copied = digest_of(&mut File::open(file)?, |bytes| new.write_all(bytes))?;
                match copied == *digest {
                    true => Ok(()),
                    false => Err(io::Error::other(format!(
                        "{} has just changed; install again",
                        file.display()
                    ))),
                }
            }),
        }
    }
}

/// The digest of all that a reader gives, in pieces, each of which `each` gets.
pub(crate) fn digest_of(
    reader: &mut impl Read,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Digest> {
    let (mut digester, mut piece) = (Digester::new(), vec![0; PIECE]);
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(digester.finish()),
            Ok(length) => {
                let bytes = piece.get(..length).unwrap_or_default();
                digester.update(bytes);
                each(bytes)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The digest of a file, which may be large.
pub(crate) fn digest_of_file(path: &Path) -> io::Result<Digest> {
    digest_of(&mut File::open(path)?, |_| Ok(()))
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.steps.iter().all(|step| step.is_done)
    }

    pub(crate) fn write(&mut self, path: &Path, contents: Contents, mode: u32, why: &str, is_done: bool) {
        self.push(
            Action::Write {
                path: path.to_owned(),
                contents,
                mode,
                lines: Vec::new(),
            },
            why,
            is_done,
        );
    }

    pub(crate) fn run(&mut self, words: &[&str], why: &str, must_succeed: bool, is_done: bool) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.push(Action::Run { words, must_succeed }, why, is_done);
    }

    pub(crate) fn push(&mut self, action: Action, why: &str, is_done: bool) {
        self.steps.push(Step {
            action,
            why: why.to_owned(),
            is_done,
        });
    }

    /// Carries out what is not done yet; `report` is called after each step. Commands come after all files, in the
    /// host's root directory.
    ///
    /// # Errors
    /// The first step that fails, with what is left undone after it; doing it all again goes on from there.
    pub fn carry_out(&self, sysroot: &Path, report: &mut dyn FnMut(&Step)) -> Result<(), Failure> {
        let mut record = self.record.clone();
        if let Some((file, record)) = &record {
            record.write(&resolve(sysroot, file))?;
        }
        let (commands, files): (Vec<&Step>, Vec<&Step>) = self
            .steps
            .iter()
            .partition(|step| matches!(step.action, Action::Run { .. }));
        for step in files {
            if !step.is_done {
                step.action.change(sysroot)?;
            }
            report(step);
        }
        if sysroot != Path::new("/") && commands.iter().any(|step| !step.is_done) {
            enter(sysroot)?;
        }
        for step in commands {
            if !step.is_done {
                step.action.command()?;
                if let (Some((file, record)), Action::Run { words, .. }) = (&mut record, &step.action) {
                    record.pending.retain(|pending| pending != words);
                    record.write(file)?;
                }
            }
            report(step);
        }
        Ok(())
    }
}

fn enter(sysroot: &Path) -> Result<(), Failure> {
    rustix::process::chroot(sysroot)
        .and_then(|()| rustix::process::chdir("/"))
        .map_err(|error| Failure::host(format!("enter {}", sysroot.display()), error))
}

impl Action {
    fn change(&self, sysroot: &Path) -> Result<(), Failure> {
        let here = |path: &Path| resolve(sysroot, path);
        match self {
            Self::Write {
                path, contents, mode, ..
            } => {
                let here = here(path);
                let write = || -> io::Result<()> {
                    if let Some(folder) = here.parent() {
                        std::fs::create_dir_all(folder)?;
                    }
                    contents.write(&here, *mode)
                };
                write().map_err(|error| Failure::host(format!("write {}", path.display()), error))
            }
            Self::Remove { path } => match std::fs::remove_file(here(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Failure::host(format!("remove {}", path.display()), error))
                }
                _ => Ok(()),
            },
            Self::Run { .. } => Ok(()),
        }
    }

    fn command(&self) -> Result<(), Failure> {
        let Self::Run { words, must_succeed } = self else {
            return Ok(());
        };
        let Some((program, arguments)) = words.split_first() else {
            return Ok(());
        };
        let doing = || format!("run `{}`", words.join(" "));
        let output = match Command::new(program).args(arguments).output() {
            Ok(output) => output,
            Err(_) if !must_succeed => return Ok(()),
            Err(error) => return Err(Failure::host(doing(), error)),
        };
        if !output.status.success() && *must_succeed {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::host(
                doing(),
                format_args!("{}: {}", output.status, said.trim()),
            ));
        }
        Ok(())
    }
}
