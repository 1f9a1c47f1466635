//! The command line of logins to registries.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// `xebec login`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec login registry.example.com                                     asks for user name and password\n  \
    xebec login --username ci --password-stdin registry.example.com <token\n  \
    xebec login docker.io                                                Docker Hub\n\n\
    Xebec asks the registry before it stores the login. Docker reads the same file, and so does podman.")]
pub(crate) struct LoginArgs {
    /// The user name.
    #[arg(short, long, value_name = "USER")]
    pub(crate) username: Option<String>,
    /// Read the password from standard input.
    #[arg(long, requires = "username")]
    pub(crate) password_stdin: bool,
    #[command(flatten)]
    pub(crate) place: LoginPlace,
}

// No documentation of its own: it would be shown as the command's.
#[derive(Debug, Args)]
pub(crate) struct LoginPlace {
    /// The file of logins; by default $DOCKER_CONFIG/config.json or ~/.docker/config.json.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authfile: Option<PathBuf>,
    /// The registry: HOST[:PORT].
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub(crate) registry: String,
}

/// `xebec logout`.
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    #[command(flatten)]
    pub(crate) place: LoginPlace,
}
