//! The servers that a registry of several nodes keeps its store in: PostgreSQL of Debian, and versitygw, which answers as S3 does. Each
//! ends with its value, and with its test at the latest.

use std::fs::{self, File, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long one of them may take to start.
const START: Duration = Duration::from_secs(60);
/// PostgreSQL does not run as root: it runs as the user who owns nothing.
const NOBODY: u32 = 65534;

/// A server that runs.
pub struct Server {
    process: Child,
    /// How it is reached: for PostgreSQL the beginning of an address, without a database; for S3 a URL.
    pub address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(command: &mut Command, address: String, mut answers: impl FnMut() -> bool) -> Result<Self> {
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let process = process.with_context(|| format!("cannot start {command:?}"))?;
        let mut server = Self { process, address };
        let begun = Instant::now();
        while !answers() {
            ensure!(
                server.process.try_wait()?.is_none(),
                "{command:?} has ended; its log is beside its data"
            );
            if begun.elapsed() > START {
                bail!("{command:?} does not answer");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

/// The programs of Debian's newest PostgreSQL, if one is installed.
pub fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    programs.filter(|programs| programs.join("initdb").exists()).max()
}

/// Starts PostgreSQL with its data and its socket in this directory, which becomes that of the user it runs as, and with settings
/// (`fsync=off`). Users who may not go through the directories above cannot reach it.
///
/// # Errors
/// If a program cannot run, or the server does not answer within a minute.
pub fn postgres(programs: &Path, directory: &Path, settings: &[&str]) -> Result<Server> {
    start_postgres(programs, directory, settings, &[])
}

/// The same with its data in memory, at most `size` (`4g`). They go with the server, at once: a disk takes longer to remove hundreds of
/// databases than tests take that make them. Another user than root gets a server with its data on the disk.
///
/// # Errors
/// As of [`postgres`].
pub fn postgres_in_memory(
    programs: &Path,
    directory: &Path,
    settings: &[&str],
    size: &str,
) -> Result<Server> {
    if !rustix::process::getuid().is_root() {
        return postgres(programs, directory, settings);
    }
    let data = directory.join("data");
    fs::create_dir_all(&data)?;
    let options = format!("size={size},mode=700,uid={NOBODY},gid={NOBODY}");
    let data = data.display().to_string();
    // The mount namespace is the server's own, so the mount goes with it.
    let script = format!("mount -t tmpfs -o {options} data \"$1\"; shift; {IN_THIS_SHELL}");
    let inside = [
        "unshare",
        "--mount",
        "--propagation=private",
        "--",
        "sh",
        "-euc",
        &script,
        "sh",
        &data,
    ];
    start_postgres(programs, directory, settings, &inside)
}

/// Makes the data, and becomes the server. `$1` is initdb with its arguments, as one word; the others are the server's.
const IN_THIS_SHELL: &str = "eval \"$1\" >&2; shift; exec \"$@\"";

/// Starts it by a command that ends with a shell, which gets the words for [`IN_THIS_SHELL`]. Without one it is a shell alone.
fn start_postgres(programs: &Path, directory: &Path, settings: &[&str], inside: &[&str]) -> Result<Server> {
    fs::create_dir_all(directory)?;
    let mut user = "setpriv --pdeathsig=KILL".to_owned();
    if rustix::process::getuid().is_root() {
        chown(directory, Some(NOBODY), Some(NOBODY))?;
        user += &format!(" --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    }
    let (programs, data) = (programs.display(), directory.join("data"));
    let make = format!(
        "{user} -- '{programs}/initdb' --auth=trust --username=xebec --encoding=UTF8 --no-sync --pgdata='{}'",
        data.display()
    );
    let alone = ["sh", "-euc", IN_THIS_SHELL, "sh"];
    let [program, arguments @ ..] = (if inside.is_empty() { &alone } else { inside }) else {
        bail!("no command")
    };
    let mut server = Command::new(program);
    server.args(arguments).arg(make);
    server
        .args(user.split(' '))
        .arg("--")
        .arg(format!("{programs}/postgres"));
    server.arg("-D").arg(&data).arg("-k").arg(directory);
    for setting in [&["listen_addresses="], settings].concat() {
        server.args(["-c", setting]);
    }
    server.stderr(File::create(directory.join("log"))?);
    let port = settings.iter().find_map(|setting| setting.strip_prefix("port="));
    let port = port.unwrap_or("5432");
    let address = format!("host={} port={port} user=xebec", directory.display());
    Server::start(&mut server, address, || {
        let mut ready = Command::new(format!("{programs}/pg_isready"));
        ready.args(["--quiet", "--port", port, "--host"]).arg(directory);
        ready.status().is_ok_and(|status| status.success())
    })
}

/// The same at a port of 127.0.0.1, too, which is returned: with TLS, if there are a certificate and its key, in PEM. A client may connect
/// there as any user, but as `bound` only with a password and TLS.
///
/// # Errors
/// As of [`postgres`].
pub fn postgres_by_tcp(
    programs: &Path,
    directory: &Path,
    tls: Option<(&str, &str)>,
) -> Result<(Server, u16)> {
    // A port that is free now.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    fs::create_dir_all(directory)?;
    let file = |name: &str, content: &str| -> Result<String> {
        let path = directory.join(name);
        fs::write(&path, content)?;
        // It takes no key that others may read.
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if rustix::process::getuid().is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(path.display().to_string())
    };
    let who = "local all all trust\nhostssl all bound 127.0.0.1/32 scram-sha-256\nhost all bound 127.0.0.1/32 reject\n\
               host all all 127.0.0.1/32 trust\n";
    let mut settings = vec![
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        format!("hba_file={}", file("hba", who)?),
    ];
    if let Some((certificate, key)) = tls {
        settings.push("ssl=on".to_owned());
        settings.push(format!("ssl_cert_file={}", file("certificate", certificate)?));
        settings.push(format!("ssl_key_file={}", file("key", key)?));
    }
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Ok((postgres(programs, directory, &settings)?, port))
}

/// versitygw, if `make setup-test` has installed it.
pub fn s3_program() -> Option<PathBuf> {
    let cache = std::env::var_os("XEBEC_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache/xebec")))?;
    let program = cache.join("tools/bin/versitygw");
    program.exists().then_some(program)
}

/// Starts versitygw with a bucket, which is a directory in this one, and the only login.
///
/// # Errors
/// If it cannot run, or does not answer within a minute.
pub fn s3(program: &Path, directory: &Path, bucket: &str, (key, secret): (&str, &str)) -> Result<Server> {
    fs::create_dir_all(directory.join(bucket))?;
    // A port that is free now.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut server = Command::new("setpriv");
    server.args(["--pdeathsig=KILL", "--"]).arg(program);
    server.args([
        "--access",
        key,
        "--secret",
        secret,
        "--port",
        &address.to_string(),
    ]);
    server.args(["--quiet", "posix"]).arg(directory);
    server.stderr(File::create(directory.with_extension("log"))?);
    Server::start(&mut server, format!("http://{address}"), || {
        TcpStream::connect(address).is_ok()
    })
}
