//! PostgreSQL and an S3 server, for registries of more than one node. They end with the case.

use std::fs::{self, File, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::lab::wait_until;
use crate::world::{World, run};

/// How long one of them may take to start.
const START: Duration = Duration::from_secs(60);
const DATABASE: &str = "XEBEC_REGISTRY_DATABASE";
const ACCESS_KEY: &str = "XEBEC_REGISTRY_S3_ACCESS_KEY";
const SECRET_KEY: &str = "XEBEC_REGISTRY_S3_SECRET_KEY";
/// PostgreSQL does not run as root: it runs as the user who owns nothing.
const NOBODY: u32 = 65534;
const BUCKET: &str = "blobs";

/// Both servers, with what a registry is told of them.
pub(crate) struct Engines {
    processes: Vec<Child>,
    /// The part of a configuration that names them.
    pub(crate) configuration: String,
    /// What a registry's environment has of them.
    pub(crate) environment: Vec<(String, String)>,
    /// Where the S3 server keeps the bucket.
    pub(crate) bucket: PathBuf,
}

impl Drop for Engines {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The newest PostgreSQL of Debian.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    programs.filter(|programs| programs.join("initdb").exists()).max()
}

impl Engines {
    /// Starts both; `None` if one of them is not installed.
    pub(crate) fn start(world: &World) -> Result<Option<Self>> {
        let versitygw = World::tool("versitygw")?;
        let (Some(programs), true) = (postgres_programs(), versitygw.is_file()) else {
            return Ok(None);
        };
        let mut engines = Self {
            processes: Vec::new(),
            configuration: String::new(),
            environment: Vec::new(),
            bucket: world.path("s3").join(BUCKET),
        };
        engines.start_postgres(world, &programs)?;
        engines.start_s3(world, &versitygw)?;
        Ok(Some(engines))
    }

    fn start_postgres(&mut self, world: &World, programs: &Path) -> Result<()> {
        let directory = world.path("postgres");
        fs::create_dir_all(&directory)?;
        chown(&directory, Some(NOBODY), Some(NOBODY))?;
        // The case's directory is root's alone, and the way to this one leads through it.
        let above = world.directory.parent().context("no directory of cases")?;
        for directory in [above, &world.directory] {
            fs::set_permissions(directory, Permissions::from_mode(0o711))?;
        }
        let (data, sockets) = (directory.join("data"), directory.clone());
        run(as_nobody(&programs.join("initdb"))
            .args([
                "--auth=trust",
                "--username=xebec",
                "--encoding=UTF8",
                "--no-sync",
                "--pgdata",
            ])
            .arg(&data))?;
        let process = as_nobody(&programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&sockets)
            // Nothing cuts the power, and it is not what is killed.
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                "max_connections=100",
                "-c",
                "fsync=off",
            ])
            .stderr(File::create(world.path("postgres.log"))?)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start PostgreSQL")?;
        self.processes.push(process);
        let socket = sockets.join(".s.PGSQL.5432");
        wait_until(START, "PostgreSQL listens", || Ok(socket.exists()))?;
        let url = format!("host={} user=xebec dbname=postgres", sockets.display());
        self.environment.push((DATABASE.to_owned(), url));
        self.configuration += &format!("[storage.postgres]\nurl_env = \"{DATABASE}\"\n");
        Ok(())
    }

    fn start_s3(&mut self, world: &World, program: &Path) -> Result<()> {
        fs::create_dir_all(&self.bucket)?;
        // A port that is free now.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let mut process = Command::new(program)
            .args([
                "--access",
                "xebec",
                "--secret",
                "for tests only",
                "--port",
                &address,
            ])
            .args(["--quiet", "posix"])
            .arg(world.path("s3"))
            .stdout(Stdio::null())
            .stderr(File::create(world.path("s3.log"))?)
            .spawn()
            .context("cannot start versitygw")?;
        let started = wait_until(START, "versitygw listens", || {
            ensure!(process.try_wait()?.is_none(), "versitygw has ended");
            Ok(TcpStream::connect(&address).is_ok())
        });
        self.processes.push(process);
        started?;
        for (name, value) in [(ACCESS_KEY, "xebec"), (SECRET_KEY, "for tests only")] {
            self.environment.push((name.to_owned(), value.to_owned()));
        }
        self.configuration += &format!(
            "[storage.s3]\nendpoint = \"http://{address}\"\nbucket = \"{BUCKET}\"\naccess_key_env = \"{ACCESS_KEY}\"\n\
             secret_key_env = \"{SECRET_KEY}\"\n"
        );
        Ok(())
    }
}

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program);
    command
}
