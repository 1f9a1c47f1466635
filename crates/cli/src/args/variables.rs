//! Environment variables: those of `--env`, and those of files.

use clap::{Args, ValueHint};
use xebec_container::read_env_file;

/// The variables of a container, or of a command in one.
#[derive(Debug, Args)]
pub(crate) struct VariableArgs {
    /// Set an environment variable; K alone takes the caller's value. Repeatable.
    #[arg(short, long = "env", value_name = "K=V")]
    pub(crate) env: Vec<String>,
    /// Set variables from a file: a line is K=V, or K for the caller's value. Repeatable; --env wins.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = of_file)]
    pub(crate) env_file: Vec<Variables>,
}

impl VariableArgs {
    /// Those of the files first, as in docker.
    pub(crate) fn all(&self) -> Vec<(String, String)> {
        let files = self.env_file.iter().flat_map(|file| file.0.clone());
        files
            .chain(self.env.iter().filter_map(|text| variable(text)))
            .collect()
    }
}

/// The variables that a file sets.
#[derive(Clone, Debug)]
pub(crate) struct Variables(Vec<(String, String)>);

/// The variables of a container that is started again are kept with it, and its files are not read again.
pub(crate) fn no_variables(_path: &str) -> Result<Variables, std::convert::Infallible> {
    Ok(Variables(Vec::new()))
}

fn of_file(path: &str) -> Result<Variables, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let variables = read_env_file(&text, |name| std::env::var(name).ok());
    variables.map(Variables).map_err(|error| error.to_string())
}

/// A variable as it was given; a name alone takes the caller's value, if there is one.
fn variable(text: &str) -> Option<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), value.to_owned())),
        None => Some((text.to_owned(), std::env::var(text).ok()?)),
    }
}
