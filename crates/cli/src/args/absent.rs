//! Options of `docker run` that Xebec does not have: each is known, and refused with the reason and the remedy.
//! `docs/containers-flags.md` has the same.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind};

/// An option that Xebec does not have.
pub(crate) struct Absent {
    /// Its long name.
    pub(crate) name: &'static str,
    takes_value: bool,
    /// The reason, and the remedy.
    why: &'static str,
}

const fn absent(name: &'static str, takes_value: bool, why: &'static str) -> Absent {
    Absent {
        name,
        takes_value,
        why,
    }
}

const HEALTH: &str = "Xebec runs no health checks; --probe says when a container is ready";
const DISK_RATE: &str =
    "the rate of disks is not limited; let systemd do it for a whole service (IOReadBandwidthMax=)";
const WINDOWS: &str = "it is for Windows; use --cpus, --memory or --pids-limit";
const REALTIME: &str =
    "real-time scheduling is not limited by container; use --cpus, --cpuset-cpus and --ulimit rtprio=";

/// Options of `docker run` that are not here.
pub(crate) const ABSENT: &[Absent] = &[
    absent("annotation", true, "nothing here reads annotations; use --label"),
    absent(
        "attach",
        true,
        "without --detach, output is joined; --interactive joins input",
    ),
    absent("blkio-weight", true, DISK_RATE),
    absent("blkio-weight-device", true, DISK_RATE),
    absent(
        "cgroup-parent",
        true,
        "containers are in the control group /xebec; run xebec itself in a systemd slice",
    ),
    absent(
        "cgroupns",
        true,
        "with control groups of version 2 it is always private, with version 1 the host's",
    ),
    absent(
        "cidfile",
        true,
        "write what `run --detach` prints into a file, or name the container with --name",
    ),
    absent("cpu-count", true, WINDOWS),
    absent("cpu-percent", true, WINDOWS),
    absent(
        "cpu-period",
        true,
        "use --cpus: 1.5 stands for a quota of 150000 in a period of 100000",
    ),
    absent(
        "cpu-quota",
        true,
        "use --cpus: 1.5 stands for a quota of 150000 in a period of 100000",
    ),
    absent("cpu-rt-period", true, REALTIME),
    absent("cpu-rt-runtime", true, REALTIME),
    absent(
        "detach-keys",
        true,
        "a container that was started in the foreground stays there; start it with --detach",
    ),
    absent("device-cgroup-rule", true, "name each device with --device"),
    absent("device-read-bps", true, DISK_RATE),
    absent("device-read-iops", true, DISK_RATE),
    absent("device-write-bps", true, DISK_RATE),
    absent("device-write-iops", true, DISK_RATE),
    absent(
        "disable-content-trust",
        false,
        "what is trusted is said in trust.toml, and for each image; see docs/trust.md",
    ),
    absent("domainname", true, "use --hostname with the whole name"),
    absent(
        "expose",
        true,
        "a port needs no permission inside; --publish names those that the host shows",
    ),
    absent(
        "gpus",
        true,
        "name the devices with --device, and mount the driver's libraries with --volume",
    ),
    absent("health-cmd", true, HEALTH),
    absent("health-interval", true, HEALTH),
    absent("health-retries", true, HEALTH),
    absent("health-start-interval", true, HEALTH),
    absent("health-start-period", true, HEALTH),
    absent("health-timeout", true, HEALTH),
    absent("io-maxbandwidth", true, WINDOWS),
    absent("io-maxiops", true, WINDOWS),
    absent("ip6", true, "networks are IPv4; use --network host for IPv6"),
    absent(
        "isolation",
        true,
        "there is one kind of isolation; --runtime chooses another OCI runtime",
    ),
    absent(
        "kernel-memory",
        true,
        "Linux has no such limit any more; use --memory",
    ),
    absent("label-file", true, "give each label with --label"),
    absent(
        "link",
        true,
        "containers of one network find each other by name; see --network",
    ),
    absent("link-local-ip", true, "use --ip, or --network host"),
    absent(
        "log-driver",
        true,
        "output of detached containers is kept by Xebec; run without --detach in a systemd service for the journal",
    ),
    absent("log-opt", true, "use --log-max-size and --log-max-files"),
    absent("mac-address", true, "the network's plugin chooses it"),
    absent(
        "memory-swappiness",
        true,
        "control groups of version 2 have no such setting; use --memory-swap",
    ),
    absent("no-healthcheck", false, HEALTH),
    absent(
        "oom-kill-disable",
        false,
        "control groups of version 2 have no such setting; use --oom-score-adj",
    ),
    absent(
        "privileged",
        false,
        "it gives the whole host to the container; say what it needs: --cap-add, --device, --security-opt seccomp=unconfined, \
         --security-opt apparmor=unconfined, --security-opt systempaths=unconfined, --pid host",
    ),
    absent(
        "sig-proxy",
        true,
        "signals are always passed on; start it with --detach to have it apart from this command",
    ),
    absent(
        "storage-opt",
        true,
        "a container's layer has no size of its own; put the root directory on a file system with quotas",
    ),
    absent(
        "use-api-socket",
        false,
        "Xebec has no API that a container could use",
    ),
    absent(
        "userns",
        true,
        "containers are in the host's user namespace; use --user, and --cap-drop ALL",
    ),
    absent(
        "uts",
        true,
        "a container always has a host name of its own, which on the host's network is the host's",
    ),
    absent(
        "volume-driver",
        true,
        "there is one driver, local; mount the file system on the host, and use --mount type=bind",
    ),
    absent("volumes-from", true, "name the volumes again with --volume"),
];

/// None of them may be given.
#[derive(Debug)]
pub(crate) struct AbsentArgs;

impl Args for AbsentArgs {
    fn augment_args(command: Command) -> Command {
        command.args(ABSENT.iter().map(|option| {
            let action = match option.takes_value {
                true => ArgAction::Append,
                false => ArgAction::SetTrue,
            };
            Arg::new(option.name).long(option.name).action(action).hide(true)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AbsentArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |option: &&Absent| match option.takes_value {
            true => matches.value_source(option.name) == Some(ValueSource::CommandLine),
            // docker's default, such as `--privileged=false`, asks for nothing.
            false => matches.get_flag(option.name),
        };
        match ABSENT.iter().find(is_given) {
            None => Ok(Self),
            Some(option) => Err(Error::raw(
                ErrorKind::ValueValidation,
                format!("xebec has no --{}: {}\n", option.name, option.why),
            )),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        Self::from_arg_matches(matches).map(drop)
    }
}

#[cfg(test)]
mod tests;
