//! The other tests once more over PostgreSQL and S3: this program starts real servers, and itself with their addresses.

use std::path::Path;
use std::process::Command;

use xebec_testkit::servers;

use crate::common::{BUCKET, POSTGRES, S3, S3_DIRECTORY, S3_KEY, S3_SECRET};

/// A server in a directory of its own.
struct Server {
    _server: servers::Server,
    _directory: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

/// A database takes eight megabytes, and goes with its test.
const MEMORY: &str = "2g";

/// No test ends the server or the machine, so nothing that the server waits for or writes twice for their sake is tried here.
const SETTINGS: [&str; 6] = [
    "max_connections=300",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
];

fn postgres(programs: &Path) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let server = servers::postgres_in_memory(programs, directory.path(), &SETTINGS, MEMORY).unwrap();
    Server {
        variables: vec![(POSTGRES, server.address.clone())],
        _server: server,
        _directory: directory,
    }
}

fn versitygw(program: &Path) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let buckets = directory.path().join("s3");
    let server = servers::s3(program, &buckets, BUCKET, (S3_KEY, S3_SECRET)).unwrap();
    let buckets = buckets.to_str().unwrap().to_owned();
    Server {
        variables: vec![(S3, server.address.clone()), (S3_DIRECTORY, buckets)],
        _server: server,
        _directory: directory,
    }
}

/// Runs all other tests of this program over these servers.
fn run_over(servers: &[&Server]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--skip", "engines::", "--skip", "encrypted::"]);
    // To look for a defect: those whose names have this in them.
    command.args(std::env::var("XEBEC_STORE_ONLY"));
    command.env(
        "XEBEC_STORE_KILLS",
        std::env::var("XEBEC_STORE_KILLS").unwrap_or("10".to_owned()),
    );
    for (variable, value) in servers.iter().flat_map(|server| &server.variables) {
        command.env(variable, value);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("test result: ok"), "{said}");
}

fn skip(what: &str) {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: the store over {what} is not here; `make setup-test` installs it"
    );
}

#[test]
fn over_postgresql() {
    match servers::postgres_programs() {
        Some(programs) => run_over(&[&postgres(&programs)]),
        None => skip("PostgreSQL: that"),
    }
}

#[test]
fn over_s3() {
    match servers::s3_program() {
        Some(program) => run_over(&[&versitygw(&program)]),
        None => skip("S3: versitygw"),
    }
}

#[test]
fn over_postgresql_and_s3() {
    match (servers::postgres_programs(), servers::s3_program()) {
        (Some(programs), Some(program)) => run_over(&[&postgres(&programs), &versitygw(&program)]),
        _ => skip("PostgreSQL and S3: one of them"),
    }
}
