//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use xebec_kernel::size::Bytes;
use xebec_placement::PlaceName;
use xebec_settings::pattern::{RepositoryPattern, TagPattern};
use xebec_settings::period::Period;

const EXAMPLES: &str = "Examples:
  xebec-registry serve --listen :5000 --root /var/lib/xebec-registry
  xebec-registry serve --config /etc/xebec-registry.toml
  xebec-registry check-config /etc/xebec-registry.toml
  xebec-registry gc --dry-run --config /etc/xebec-registry.toml
  xebec-registry copies --plan --config /etc/xebec-registry.toml
  xebec-registry backup /backup/registry --config /etc/xebec-registry.toml
  xebec-registry import /var/lib/registry --config /etc/xebec-registry.toml
  xebec-registry mirror registry.example.com/team --config /etc/xebec-registry.toml
  xebec-registry user add anna --config /etc/xebec-registry.toml

Exit codes: 0, all is well; 1, an error; 2, the command line is wrong; 3, something that is kept is damaged or missing; 4, a backup lacks \
what a place may have that cannot be read now.

A configuration with every key and its meaning is docs/registry.toml.";

/// A container registry whose images start lazily by themselves.
#[derive(Debug, Parser)]
#[command(name = "xebec-registry", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Say more in the log.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer clients until the process is told to end.
    Serve(Serve),
    /// Say what is wrong with a configuration, and in which line.
    #[command(name = "check-config")]
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Delete what the rules let go (retention, copies of upstreams), then collect what nothing refers to; also while a registry serves.
    Gc(Collect),
    /// Read everything again, compare it with its digest, and mend what is wrong; also while a registry serves.
    Scrub(Scrub),
    /// Say how much room layers take up, and how much less that is than they have as they were pushed.
    Space(Space),
    /// Say where copies are, what the rules of `[[copies]]` would change, and forget a place that is lost; also while a registry serves.
    Copies(Copies),
    /// Copy everything to a directory, also while a registry serves.
    Backup(Backup),
    /// Restore a backup to an empty directory, and compare all of it with its digests.
    Restore(Restore),
    /// Say whether everything works that this registry needs, with the cause and the next step of what does not.
    Doctor(Doctor),
    /// Take over what a CNCF distribution registry has in a directory.
    Import(Import),
    /// Copy repositories of a registry that runs.
    Mirror(Mirror),
    /// Add, change, remove and list the users of an htpasswd file.
    User(Users),
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory.
    Man {
        /// The directory.
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry user add anna --htpasswd /etc/xebec-registry.htpasswd
  pwgen 24 1 | xebec-registry user add ci --config /etc/xebec-registry.toml
  xebec-registry user list --config /etc/xebec-registry.toml

A registry that serves meanwhile reads the file again by itself.")]
pub(crate) struct Users {
    #[command(subcommand)]
    pub(crate) action: UserAction,
    /// The htpasswd file, instead of the configuration's (auth.htpasswd).
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) htpasswd: Option<PathBuf>,
    /// The configuration file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "XEBEC_REGISTRY_CONFIG",
        global = true
    )]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserAction {
    /// Add a user, or change the password of one. The password comes from the terminal, or from standard input.
    Add {
        /// The user's name.
        name: String,
    },
    /// Remove a user.
    Rm {
        /// The user's name.
        name: String,
    },
    /// Print the users' names, a line each.
    List,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry space --config /etc/xebec-registry.toml
  xebec-registry space --root /var/lib/xebec-registry --json | jq .stored_bytes

It reads the records of all blobs, also while a registry serves.")]
pub(crate) struct Space {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print an object of JSON; sizes are in bytes.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry copies --config /etc/xebec-registry.toml
  xebec-registry copies --plan --config /etc/xebec-registry.toml
  xebec-registry copies --lost cold --config /etc/xebec-registry.toml

Change [[copies]] in the configuration, look at --plan, then send `serve` a SIGHUP. It carries the rules out while it serves. \
Start it again instead if [[place]] or [deduplication] has changed.
--plan reads the records of all blobs; the figures read those of all copies.")]
pub(crate) struct Copies {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Say what the rules of the configuration would change: room on each place, and about how long it takes. Change nothing.
    #[arg(long, conflicts_with_all = ["lost", "check"])]
    pub(crate) plan: bool,
    /// Forget a place whose contents are lost. What the rules want there is made again from other copies, once it is there, empty.
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["check", "json"])]
    pub(crate) lost: Option<PlaceName>,
    /// With --lost: also if something has no other copy, which is lost then.
    #[arg(long, requires = "lost")]
    pub(crate) yes: bool,
    /// Have `serve` look at all copies again, whether they are there.
    #[arg(long, conflicts_with = "json")]
    pub(crate) check: bool,
    /// Print an object of JSON; sizes are in bytes.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the registry keeps its data.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", env = "XEBEC_REGISTRY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The directory for blobs and the embedded database, instead of the configuration's (/var/lib/xebec-registry).
    #[arg(long, value_name = "DIR", env = "XEBEC_REGISTRY_ROOT")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry serve --listen :5000 --root /var/lib/xebec-registry
  xebec-registry serve --listen :443 --config /etc/xebec-registry.toml

SIGTERM and SIGINT end it: requests that are under way are finished. SIGHUP reads the certificate again, and the rules of [[copies]].")]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Where clients connect, as 127.0.0.1:5000, or :5000 for all addresses of this host. May be given several times.
    #[arg(
        short,
        long,
        value_name = "ADDR",
        env = "XEBEC_REGISTRY_LISTEN",
        value_delimiter = ','
    )]
    pub(crate) listen: Vec<String>,
    /// The certificate in PEM, with --tls-key; without, plain HTTP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry gc --dry-run --root /var/lib/xebec-registry
  xebec-registry gc --config /etc/xebec-registry.toml")]
pub(crate) struct Collect {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Say what would be deleted, by which rule, and how much; delete nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry scrub --rate 50m --config /etc/xebec-registry.toml
  xebec-registry scrub --not-within 7d --root /var/lib/xebec-registry

A blob with wrong bytes counts as absent from then on. One of an upstream's image is fetched again at once; any other is mended by the \
next push of an image that has it. The exit code is 3 while something is damaged.")]
pub(crate) struct Scrub {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Read so many bytes a second at most, as 50m.
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<Bytes>,
    /// Leave out blobs that were sound within this time, as 7d: so a scrub that was ended goes on.
    #[arg(long, value_name = "TIME")]
    pub(crate) not_within: Option<Period>,
    /// Fetch nothing again from upstreams.
    #[arg(long)]
    pub(crate) no_mend: bool,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry backup /backup/registry --config /etc/xebec-registry.toml

An earlier backup in the same directory is brought up to date: what it has already is not copied again. On the file system of the \
registry, files are linked instead of copied: that guards against deletion, and not against a broken disk.
The configuration, the htpasswd file and the token key are not in it.
What no copy gives is listed, also in the file `incomplete` of the backup, and the rest is backed up. Then the exit code is 4 if a place is away \
that may have it, and 3 if some of it has no copy with right bytes any more.")]
pub(crate) struct Backup {
    /// The directory for the backup. It is made if it is missing.
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry restore /backup/registry --root /var/lib/xebec-registry
  xebec-registry restore /backup/registry --without-damaged --root /var/lib/xebec-registry

A restore that was broken off is begun again by the same command. If something in the backup is damaged, it is listed, there is no \
registry in the directory, and the exit code is 3.
With --without-damaged there is one, and the exit code is 3 all the same. A blob that was left out counts as absent, as after a scrub: the \
next push of an image that has it brings it again, and `scrub` fetches those of upstreams. Manifests and tags that name it stay.")]
pub(crate) struct Restore {
    /// The directory of the backup.
    pub(crate) backup: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Restore what is sound of a damaged backup, and list what was left out and what names it.
    #[arg(long)]
    pub(crate) without_damaged: bool,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry doctor --config /etc/xebec-registry.toml

It looks at the configuration, the directory, its room, the clock, the database, the objects, the places for copies, the addresses, the \
certificate, the upstreams with their logins, and the keys of those who issue tokens. The exit code is 1 if something does not work. The database is opened \
as `serve` opens it: its schema is brought up to date.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Say of a place for copies that it hangs if it does not answer within this time.
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub(crate) patience: Period,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry import /var/lib/registry --dry-run --root /var/lib/xebec-registry
  xebec-registry import /var/lib/registry --config /etc/xebec-registry.toml
  xebec-registry import /var/lib/registry --repository 'team/**' --hard-link

DIR is the rootdirectory of the other registry's storage, which has docker/registry/v2. Run it as the user that serves. What is damaged, \
missing or of an unknown kind is named and skipped; then the exit code is 1. Another run passes over what is here.")]
pub(crate) struct Import {
    /// The directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only repositories that this covers: team/app, team/*, team/**. May be given several times.
    #[arg(long = "repository", value_name = "PATTERN", value_parser = RepositoryPattern::parse)]
    pub(crate) repositories: Vec<RepositoryPattern>,
    /// Say what would come, and how much; write nothing. Manifests are compared with their digests, blobs are not read.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Copy no blobs: give their files a second name in the store, on the same file system. The other registry goes on as it is.
    #[arg(long, conflicts_with = "move_files")]
    pub(crate) hard_link: bool,
    /// The same, and remove the files from the directory once an image that names them is here. The other registry must have ended.
    #[arg(long = "move", conflicts_with = "repositories")]
    pub(crate) move_files: bool,
    /// Print what was done as an object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry mirror registry.example.com/team --config /etc/xebec-registry.toml
  xebec-registry mirror docker.io --repository library/nginx --tag '1.*' --to hub
  xebec-registry mirror --config /etc/xebec-registry.toml

Without SOURCE, each [[mirror]] of the configuration is made once. Names without a star need no list of repositories, which many registries \
do not give. What is here is not fetched again; what cannot be had is named and skipped, and then the exit code is 1.")]
pub(crate) struct Mirror {
    /// The registry: its host, with a port if it has one, and perhaps a prefix of names.
    #[arg(value_name = "SOURCE[/PREFIX]")]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only repositories that this covers, by their whole names there: library/nginx, team/**. May be given several times.
    #[arg(long = "repository", value_name = "PATTERN", value_parser = RepositoryPattern::parse, requires = "source")]
    pub(crate) repositories: Vec<RepositoryPattern>,
    /// Only tags that this covers, as 1.*; signatures and referrers come along. May be given several times.
    #[arg(long = "tag", value_name = "PATTERN", value_parser = TagPattern::parse, requires = "source")]
    pub(crate) tags: Vec<TagPattern>,
    /// The prefix that the names get here.
    #[arg(long, value_name = "PREFIX", requires = "source")]
    pub(crate) to: Option<String>,
    /// Speak to the source without TLS.
    #[arg(long, requires = "source")]
    pub(crate) plain_http: bool,
    /// A PEM file with certificate authorities to trust beside those of the system.
    #[arg(long, value_name = "FILE", requires = "source")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Log in with this name, and the password that --password-env names.
    #[arg(long, value_name = "NAME", requires_all = ["source", "password_env"])]
    pub(crate) username: Option<String>,
    /// The variable of the environment that has the password.
    #[arg(long, value_name = "VARIABLE", requires = "username")]
    pub(crate) password_env: Option<String>,
    /// Instead of both: a file of logins as docker and podman write it.
    #[arg(long, value_name = "FILE", requires = "source", conflicts_with = "username")]
    pub(crate) docker_config: Option<PathBuf>,
    /// Bytes of blobs in a second, at most, as 20m.
    #[arg(long, value_name = "SIZE", requires = "source")]
    pub(crate) rate: Option<Bytes>,
    /// Blobs and tags that are copied at the same time; 4 without it.
    #[arg(long, value_name = "N", requires = "source")]
    pub(crate) jobs: Option<usize>,
    /// Remove tags here that the source has no longer.
    #[arg(long, requires = "source")]
    pub(crate) prune: bool,
    /// Print what was done as an object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nothing_but_an_address_and_a_directory_is_needed() {
        let cli =
            Cli::try_parse_from(["xebec-registry", "serve", "--listen", ":5000", "--root", "/r"]).unwrap();
        let Command::Serve(serve) = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(serve.listen, [":5000"]);
        assert_eq!(serve.place.root, Some(PathBuf::from("/r")));
    }

    #[test]
    fn files_are_linked_or_moved_and_all_of_them() {
        let parse = |options: &[&str]| {
            let words = ["xebec-registry", "import", "/d"].iter().chain(options);
            Cli::try_parse_from(words)
        };
        assert!(parse(&["--hard-link", "--repository", "team/**"]).is_ok());
        assert!(parse(&["--hard-link", "--move"]).is_err());
        assert!(parse(&["--move", "--repository", "team/**"]).is_err());
        assert!(parse(&["--repository", "Team"]).is_err());
    }

    #[test]
    fn what_is_said_of_a_source_needs_one() {
        let parse = |options: &[&str]| {
            let words = ["xebec-registry", "mirror"].iter().chain(options);
            Cli::try_parse_from(words)
        };
        assert!(parse(&[]).is_ok());
        assert!(parse(&["--prune"]).is_err());
        assert!(parse(&["r.lan", "--prune", "--rate", "10m", "--tag", "v*"]).is_ok());
        assert!(parse(&["r.lan", "--username", "robot"]).is_err());
    }

    #[test]
    fn a_certificate_comes_with_its_key() {
        assert!(Cli::try_parse_from(["xebec-registry", "serve", "--tls-cert", "c"]).is_err());
    }
}
