//! PostgreSQL and an S3 server, for registries of more than one node. They end with the case.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use xebec_testkit::servers::{self, Server};

use crate::world::World;

const DATABASE: &str = "XEBEC_REGISTRY_DATABASE";
const ACCESS_KEY: &str = "XEBEC_REGISTRY_S3_ACCESS_KEY";
const SECRET_KEY: &str = "XEBEC_REGISTRY_S3_SECRET_KEY";
const BUCKET: &str = "blobs";
const LOGIN: (&str, &str) = ("xebec", "for tests only");

/// Both servers, with what a registry is told of them.
pub(crate) struct Engines {
    _servers: [Server; 2],
    /// The part of a configuration that names them.
    pub(crate) configuration: String,
    /// The variables of a registry's environment that name them.
    pub(crate) environment: Vec<(String, String)>,
    /// Where the S3 server keeps the bucket.
    pub(crate) bucket: PathBuf,
}

impl Engines {
    /// Starts both; `None` if one of them is not installed.
    pub(crate) fn start(world: &World) -> Result<Option<Self>> {
        let versitygw = World::tool("versitygw")?;
        let (Some(programs), true) = (servers::postgres_programs(), versitygw.is_file()) else {
            return Ok(None);
        };
        // The case's directory is root's alone, and the way to the database leads through it.
        let above = world.directory.parent().context("no directory of cases")?;
        for directory in [above, &world.directory] {
            fs::set_permissions(directory, Permissions::from_mode(0o711))?;
        }
        // Nothing cuts the power, and it is not what is killed.
        let postgres = servers::postgres(
            &programs,
            &world.path("postgres"),
            &["max_connections=100", "fsync=off"],
        )?;
        let s3 = servers::s3(&versitygw, &world.path("s3"), BUCKET, LOGIN)?;
        let configuration = format!(
            "[storage.postgres]\nurl_env = \"{DATABASE}\"\n\
             [storage.s3]\nendpoint = \"{}\"\nbucket = \"{BUCKET}\"\naccess_key_env = \"{ACCESS_KEY}\"\n\
             secret_key_env = \"{SECRET_KEY}\"\n",
            s3.address
        );
        let database = format!("{} dbname=postgres", postgres.address);
        let environment = [
            (DATABASE, database.as_str()),
            (ACCESS_KEY, LOGIN.0),
            (SECRET_KEY, LOGIN.1),
        ];
        Ok(Some(Self {
            _servers: [postgres, s3],
            configuration,
            environment: environment
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            bucket: world.path("s3").join(BUCKET),
        }))
    }
}
