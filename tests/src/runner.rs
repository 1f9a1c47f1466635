//! Runs cases: isolation, watchdog, output, and the sum at the end.
//!
//! For each case the runner starts `unshare`, in it this program as the first process of a process namespace (which reaps orphaned
//! processes), and in it this program once more as the case. Killing `unshare` kills all.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::company::{Company, company};
use crate::groups;
use crate::world::World;

/// First argument of the first process of a case's process namespace.
pub(crate) const AS_INIT: &str = "--as-init";
/// First argument of a case.
pub(crate) const AS_CASE: &str = "--as-case";

/// Exit code of a case that could not run here (as automake has it).
const SKIPPED: u8 = 77;
/// Cases that mostly wait run so many at a time where of others one runs: beginning and ending take a tenth of their time.
const WAITING_AT_ONCE: usize = 3;
/// Cases that run at a time for each processor.
const AT_ONCE: usize = 2;
/// Up to so many cases that failed are tried once more, alone: a machine that is busy with others can make a case fail. More failures
/// than that have another cause.
const TRIED_AGAIN: usize = 3;
/// Beginnings of the names of cases that kill at random moments: that another try meets no fault says nothing.
const RANDOM: &[&str] = &[
    "soak/",
    "power/",
    "registry/killed",
    "registry/power-cut",
    "runtime/power",
];
/// So many of the cases that take most of the processors are shown.
const MOST: usize = 10;
/// How often the watchdog looks.
const WATCH: Duration = Duration::from_millis(20);

/// A test.
pub(crate) struct Case {
    /// Its name, `topic/what`.
    pub(crate) name: String,
    /// How long it may take before the watchdog ends it.
    pub(crate) limit: Duration,
    /// The function that runs it.
    pub(crate) run: Body,
}

/// The function that runs a case.
pub(crate) type Body = Box<dyn Fn(&World) -> Result<Outcome> + Send + Sync>;

/// How a case ended that did not fail.
pub(crate) enum Outcome {
    /// It held; the text says what was looked at, with figures.
    Passed(String),
    /// It could not run here; the text says why.
    Skipped(String),
}

enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// Runs the cases that match, as many at a time as `E2E_JOBS` says, and beside them those that take long and little. Then it runs those
/// that mostly wait, and then one at a time those that need the machine for themselves. A few that failed are tried once more, and
/// those that pass then are named as `FLAKY`. It prints the sum. Succeeds when none failed, or none twice.
pub(crate) fn run_all(cases: &[Case], filters: &[String]) -> ExitCode {
    let chosen = |case: &&Case| filters.is_empty() || filters.iter().any(|part| case.name.contains(part));
    let sum = Mutex::new(Sum::default());
    let jobs = jobs();
    let (any, light) = ((Company::Any, jobs), (Company::Light, (jobs / AT_ONCE).max(1)));
    let first = match jobs {
        // One by one, if that is asked for.
        1 => vec![vec![any], vec![light]],
        _ => vec![vec![any, light]],
    };
    let last = [
        vec![(Company::Waiting, WAITING_AT_ONCE * jobs)],
        vec![(Company::None, 1)],
    ];
    for stage in first.into_iter().chain(last) {
        std::thread::scope(|scope| {
            for (together, jobs) in stage {
                let cases = cases.iter().filter(chosen);
                let cases = cases.filter(|case| company(&case.name) == together).collect();
                let sum = &sum;
                scope.spawn(move || run_some(cases, jobs, sum));
            }
        });
    }
    let mut sum = sum.into_inner();
    let failed: Vec<&Case> = cases
        .iter()
        .filter(|case| sum.failed.contains(&case.name))
        .collect();
    let is_random = |case: &&Case| RANDOM.iter().any(|begin| case.name.starts_with(begin));
    if failed.len() <= TRIED_AGAIN && !failed.iter().any(is_random) {
        sum.try_again(&failed);
    }
    sum.show_processors();
    println!(
        "\n{} passed, {} failed, {} skipped",
        sum.passed,
        sum.failed.len(),
        sum.skipped
    );
    if sum.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs these cases, `jobs` at a time.
fn run_some(cases: Vec<&Case>, jobs: usize, sum: &Mutex<Sum>) {
    let waiting = Mutex::new(cases.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(case) = next(&waiting) {
                    let started = Instant::now();
                    let result = run_isolated(case);
                    let mut sum = sum.lock();
                    sum.add(case, result, started.elapsed());
                }
            });
        }
    });
}

/// How many cases run at a time where nothing else is told: for each processor two, since most of them wait half of the time.
fn jobs() -> usize {
    let told = std::env::var("E2E_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    told.unwrap_or_else(|| AT_ONCE * processors()).max(1)
}

/// The next case that nobody runs.
fn next<'a>(waiting: &Mutex<impl Iterator<Item = &'a Case>>) -> Option<&'a Case> {
    waiting.lock().next()
}

/// How many cases ended how.
#[derive(Default)]
struct Sum {
    passed: usize,
    /// The names of those that failed.
    failed: BTreeSet<String>,
    skipped: usize,
    /// How long processors worked for each.
    processors: Vec<(Duration, String)>,
}

impl Sum {
    /// Prints how a case ended, and counts it.
    fn add(&mut self, case: &Case, result: Result<Ended>, took: Duration) {
        let ended = result.unwrap_or_else(|error| Ended {
            verdict: Verdict::Failed,
            text: format!("{error:#}\n"),
            processors: Duration::ZERO,
        });
        self.processors.push((ended.processors, case.name.clone()));
        let word = match ended.verdict {
            Verdict::Passed => {
                self.passed += 1;
                "ok"
            }
            Verdict::Failed => {
                self.failed.insert(case.name.clone());
                "FAILED"
            }
            Verdict::Skipped => {
                self.skipped += 1;
                "SKIPPED"
            }
        };
        println!("test {} ... {word} ({:.1} s)", case.name, took.as_secs_f64());
        ended.text.lines().for_each(|line| println!("     {line}"));
        let _ = io::stdout().flush();
    }

    /// Prints which cases took most of the processors: both are busy most of the time, so only less work makes the whole quicker.
    fn show_processors(&mut self) {
        self.processors.sort_unstable();
        let all: Duration = self.processors.iter().map(|(time, _)| *time).sum();
        println!("\n     {:8.1} s of processors, most of it for", all.as_secs_f64());
        for (time, name) in self.processors.iter().rev().take(MOST) {
            println!("     {:8.1} s  {name}", time.as_secs_f64());
        }
    }

    /// Runs cases that failed once more, one at a time. Those that pass are named, since a test that fails now and then is a defect.
    fn try_again(&mut self, failed: &[&Case]) {
        for case in failed {
            let (started, passed) = (Instant::now(), self.passed);
            self.add(case, run_isolated(case), started.elapsed());
            if self.passed > passed {
                self.failed.remove(&case.name);
                println!("FLAKY {}: it failed first, and passed alone", case.name);
            }
        }
    }
}

/// How a case ended.
struct Ended {
    verdict: Verdict,
    /// Its figures, or all that it printed if it failed.
    text: String,
    /// How long processors worked for it.
    processors: Duration,
}

/// Runs one case.
fn run_isolated(case: &Case) -> Result<Ended> {
    let directory = tempfile::Builder::new().prefix("xebec-e2e-").tempdir()?;
    let (figures, log) = (directory.path().join("figures"), directory.path().join("log"));
    let work = directory.path().join("w");
    fs::create_dir(&work)?;
    let mut child = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ])
        .arg(std::env::current_exe()?)
        .args([AS_INIT, &case.name])
        .arg(&work)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(File::create(&figures)?)
        .stderr(File::create(&log)?)
        .spawn()
        .context("cannot start unshare (util-linux)")?;
    let deadline = Instant::now() + case.limit;
    let mut is_late = false;
    while !has_ended(&child)? {
        if Instant::now() > deadline && !is_late {
            is_late = true;
            child.kill()?;
        }
        std::thread::sleep(WATCH);
    }
    let processors = processor_time(&child);
    let status = child.wait()?;
    let status = (!is_late).then_some(status);
    let name = directory.path().file_name().and_then(OsStr::to_str);
    let left = groups::remove(name.context("an odd temporary directory")?);
    let figures = fs::read_to_string(&figures)?;
    let log = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    // Kept on request, to look at what a failed case left.
    if std::env::var_os("E2E_KEEP").is_some() {
        println!("kept {}", directory.keep().display());
    }
    let late = || format!("still running after {:?}\n", case.limit);
    let (verdict, text) = match (left, status.map(|status| status.code())) {
        (Err(error), _) => (Verdict::Failed, format!("{error:#}\n{figures}{log}")),
        (_, Some(Some(0))) => (Verdict::Passed, figures),
        (_, Some(Some(code))) if code == i32::from(SKIPPED) => (Verdict::Skipped, figures),
        (_, Some(_)) => (Verdict::Failed, figures + &log),
        (_, None) => (Verdict::Failed, late() + &figures + &log),
    };
    Ok(Ended {
        verdict,
        text,
        processors,
    })
}

/// How long processors worked for a child that has ended, and for all that it waited for: the first process of a case's namespace waits for
/// all others, and the kernel for those that outlive it.
fn processor_time(child: &Child) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // The fields after the name, which may have spaces in it. See proc(5): utime, stime, cutime, cstime.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Whether a child has ended. It stays to be looked at and waited for.
fn has_ended(child: &Child) -> Result<bool> {
    use rustix::process::{WaitId, WaitIdOptions};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let found = rustix::process::waitid(WaitId::Pid(rustix::process::Pid::from_child(child)), options)?;
    Ok(found.is_some())
}

/// The first process of the namespace: starts the case, reaps what is orphaned until the case ends, ends as it did.
pub(crate) fn be_init(arguments: &[String]) -> ExitCode {
    let run = || -> Result<u8> {
        let case = Command::new(std::env::current_exe()?)
            .arg(AS_CASE)
            .args(arguments)
            .spawn()?;
        let case = rustix::process::Pid::from_child(&case);
        loop {
            let ended = rustix::process::wait(rustix::process::WaitOptions::empty())?;
            if let Some((pid, status)) = ended
                && pid == case
            {
                return Ok(status
                    .exit_status()
                    .and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(1));
            }
        }
    };
    run().map_or_else(report, ExitCode::from)
}

/// The case itself: `NAME DIRECTORY`.
pub(crate) fn be_case(cases: &[Case], arguments: &[String]) -> ExitCode {
    let run = || -> Result<u8> {
        let [name, directory] = arguments else {
            bail!("{AS_CASE} takes a name and a directory")
        };
        let case = cases
            .iter()
            .find(|case| case.name == *name)
            .context("no such case")?;
        let world = World::new(Path::new(directory))?;
        let (text, code) = match (case.run)(&world)? {
            Outcome::Passed(text) => (text, 0),
            Outcome::Skipped(text) => (text, SKIPPED),
        };
        println!("{text}");
        Ok(code)
    };
    run().map_or_else(report, ExitCode::from)
}

/// Says it where figures would be, before all that the case's processes have logged; a cause before the log that it came with.
fn report(error: anyhow::Error) -> ExitCode {
    if error.to_string().contains('\n') {
        println!("{}", error.root_cause());
    }
    println!("{error:#}");
    ExitCode::FAILURE
}
