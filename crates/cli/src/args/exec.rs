//! Commands that reach into containers that run: `xebec exec`, `cp`, `stats` and `top`.

use clap::Args;

use super::variables::VariableArgs;

/// `xebec exec`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec exec -it web sh\n  \
    xebec exec -u www-data -w /srv web ls -l\n  \
    xebec exec -e DEBUG=1 web /usr/bin/report --all\n  \
    tar -c . | xebec exec -i web tar -x -C /srv\n\n\
    The command has what confines the container, and the container's environment. It ends with the command's own\n\
    exit code: 127 if the container lacks the command, 126 if the command is not executable, 125 if Xebec failed.")]
pub(crate) struct ExecArgs {
    /// Connect the command to standard input.
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give the command a terminal.
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Do not wait for the command. It has no input and no output.
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    pub(crate) detach: bool,
    /// The command's variables, beside those of the container.
    #[command(flatten)]
    pub(crate) variables: VariableArgs,
    /// Working directory; by default the container's.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// User and group, by name or number; by default the container's.
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,
    /// The container's name, then the command and its arguments. All that follows the name is the command's.
    // In one, or an option right after the name would be taken for Xebec's.
    #[arg(required = true, num_args = 2.., trailing_var_arg = true, value_names = ["CONTAINER", "CMD"])]
    line: Vec<String>,
}

impl ExecArgs {
    /// The container's name.
    pub(crate) fn name(&self) -> &str {
        self.line.first().map(String::as_str).unwrap_or_default()
    }

    /// The command and its arguments.
    pub(crate) fn command(&self) -> &[String] {
        self.line.get(1..).unwrap_or_default()
    }
}

/// `xebec cp`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec cp web:/etc/nginx/nginx.conf .              out of a container\n  \
    xebec cp site/. web:/srv                          the contents of a directory into a container\n  \
    xebec cp -a web:/var/log - | gzip > log.tar.gz    a tar stream, with owners\n  \
    tar -c . | xebec cp - web:/srv                    a tar stream into a container\n\n\
    A path with a colon in its first part is a container's; write ./a:b for a file of that name. No link leads out of a\n\
    container. Devices and sockets are left out, and named. On the host, files belong to the caller unless -a is given.")]
pub(crate) struct CopyArgs {
    /// Keep owners, and on the host the bits that let a program run as its owner.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// If the source is a link, copy the file to which it leads.
    #[arg(short = 'L', long)]
    pub(crate) follow_link: bool,
    /// The source: PATH, NAME:PATH, or - for a tar stream on standard input.
    #[arg(value_name = "SRC")]
    pub(crate) from: String,
    /// The destination: PATH, NAME:PATH, or - for a tar stream on standard output.
    #[arg(value_name = "DST")]
    pub(crate) to: String,
}

/// `xebec stats`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec stats                       all containers that run, until Ctrl-C\n  \
    xebec stats --no-stream web db    two containers, once\n  \
    xebec stats --json web            a line of JSON a second")]
pub(crate) struct StatsArgs {
    /// The containers; by default all that run.
    #[arg(value_name = "CONTAINER")]
    pub(crate) names: Vec<String>,
    /// Print once. Otherwise every second, until Ctrl-C or until no container runs.
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Print JSON: a line each time.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The container's name.
    #[arg(value_name = "CONTAINER")]
    pub(crate) name: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Cli, Command};

    fn exec(words: &[&str]) -> Option<Box<super::ExecArgs>> {
        let words = ["xebec", "exec"].iter().chain(words);
        match Cli::try_parse_from(words).ok()?.command {
            Command::Exec(args) => Some(args),
            _ => None,
        }
    }

    #[test]
    fn all_that_follows_the_name_is_the_commands() {
        for command in [
            &["ls", "-l"][..],
            &["sh", "--version"],
            &["sh", "-c", "x", "--", "-d"],
            &["-t"],
            &["--help"],
            &["-e", "A=B"],
        ] {
            let words: Vec<&str> = ["-i", "box"].iter().chain(command).copied().collect();
            let args = exec(&words);
            let args = args.as_deref();
            assert_eq!(args.map(|args| args.name()), Some("box"), "{command:?}");
            let given = args.map(|args| args.command().iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(given.as_deref(), Some(command));
            assert!(args.is_some_and(|args| args.interactive && !args.tty && !args.detach));
        }
        assert!(exec(&["box"]).is_none(), "without a command");
        assert!(exec(&["-d", "-t", "box", "sh"]).is_none());
    }

    #[test]
    fn variables_of_the_command_line_win() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "A=0\nC=3\n").unwrap();
        let file = file.path().to_str().unwrap();
        let args = exec(&["-e", "A=1", "--env-file", file, "-e", "B=x=y", "box", "env"]);
        let variables = args.map(|args| args.variables.all()).unwrap_or_default();
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        // Of two of one name the later one counts.
        assert_eq!(
            variables,
            [own("A", "0"), own("C", "3"), own("A", "1"), own("B", "x=y")]
        );
    }
}
