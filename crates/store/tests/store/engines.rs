//! The other tests once more over PostgreSQL and S3: this program starts real servers, and itself with their addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{BUCKET, POSTGRES, S3, S3_DIRECTORY, S3_KEY, S3_SECRET};

/// A server that is ended with this, by its number.
struct Server {
    process: Child,
    _directory: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not start");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The newest PostgreSQL of Debian.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    programs.filter(|programs| programs.join("initdb").exists()).max()
}

/// Runs as a user that owns nothing, since PostgreSQL does not run as root; it ends with this process at the latest.
fn as_another_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::getuid().is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command
        .args(["--pdeathsig=KILL", "--"])
        .arg(program)
        .stdout(Stdio::null());
    command
}

fn postgres(programs: &Path) -> Server {
    let directory = tempfile::tempdir().unwrap();
    if rustix::process::getuid().is_root() {
        std::os::unix::fs::chown(directory.path(), Some(65534), Some(65534)).unwrap();
    }
    let data = directory.path().join("data");
    let made = as_another_user(&programs.join("initdb"))
        .args([
            "--auth=trust",
            "--username=xebec",
            "--encoding=UTF8",
            "--no-sync",
            "--pgdata",
        ])
        .arg(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let process = as_another_user(&programs.join("postgres"))
        .arg("-D")
        .arg(&data)
        .arg("-k")
        .arg(directory.path())
        .args(["-c", "listen_addresses=", "-c", "max_connections=300"])
        .stderr(fs::File::create(directory.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let server = format!("host={} user=xebec", directory.path().display());
    let url = format!("{server} dbname=postgres");
    let started = Server {
        process,
        _directory: directory,
        variables: vec![(POSTGRES, server)],
    };
    wait_until("PostgreSQL", || {
        postgres::Client::connect(&url, postgres::NoTls).is_ok()
    });
    started
}

fn versitygw_program() -> Option<PathBuf> {
    let cache = std::env::var_os("XEBEC_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache/xebec")))?;
    let program = cache.join("tools/bin/versitygw");
    program.exists().then_some(program)
}

fn versitygw(program: &Path) -> Server {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join(BUCKET)).unwrap();
    // A port that is free now.
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let process = Command::new("setpriv")
        .args(["--pdeathsig=KILL", "--"])
        .arg(program)
        .args([
            "--access",
            S3_KEY,
            "--secret",
            S3_SECRET,
            "--port",
            &format!("127.0.0.1:{port}"),
        ])
        .args(["--quiet", "posix"])
        .arg(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bucket = directory.path().to_str().unwrap().to_owned();
    let started = Server {
        process,
        _directory: directory,
        variables: vec![(S3, format!("http://127.0.0.1:{port}")), (S3_DIRECTORY, bucket)],
    };
    wait_until("versitygw", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    started
}

/// Runs all other tests of this program over these servers.
fn run_over(servers: &[&Server]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--skip", "engines::", "--skip", "model::"]);
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
    match postgres_programs() {
        Some(programs) => run_over(&[&postgres(&programs)]),
        None => skip("PostgreSQL: that"),
    }
}

#[test]
fn over_s3() {
    match versitygw_program() {
        Some(program) => run_over(&[&versitygw(&program)]),
        None => skip("S3: versitygw"),
    }
}

#[test]
fn over_postgresql_and_s3() {
    match (postgres_programs(), versitygw_program()) {
        (Some(programs), Some(program)) => run_over(&[&postgres(&programs), &versitygw(&program)]),
        _ => skip("PostgreSQL and S3: one of them"),
    }
}
