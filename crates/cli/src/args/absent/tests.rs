#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use clap::CommandFactory;

use super::*;
use crate::args::Cli;

/// The options of `docker run` (docker 28), without `--help`.
const DOCKERS: &str = "add-host annotation attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns \
    cidfile cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus \
    cpuset-mems detach detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps \
    device-write-iops disable-content-trust dns dns-option dns-search domainname entrypoint env env-file expose gpus \
    group-add health-cmd health-interval health-retries health-start-interval health-start-period health-timeout \
    hostname init interactive io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory label label-file link \
    link-local-ip log-driver log-opt mac-address memory memory-reservation memory-swap memory-swappiness mount name \
    network network-alias no-healthcheck oom-kill-disable oom-score-adj pid pids-limit platform privileged publish \
    publish-all pull quiet read-only restart rm runtime security-opt shm-size sig-proxy stop-signal stop-timeout \
    storage-opt sysctl tmpfs tty ulimit use-api-socket user userns uts volume volume-driver volumes-from workdir";

/// The class that the table gives each option: `same`, `differs` or `not there`.
fn table() -> BTreeMap<String, String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/containers-flags.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `--"));
    rows.map(|row| {
        let (name, rest) = row.split_once('`').unwrap();
        let class = rest.split('|').nth(1).unwrap().trim();
        (name.to_owned(), class.to_owned())
    })
    .collect()
}

/// The options that `xebec run` shows, by all their names.
fn shown() -> Vec<String> {
    let mut command = Cli::command();
    command.build();
    let command = command.find_subcommand("run").unwrap();
    let shown = command.get_arguments().filter(|option| !option.is_hide_set());
    let names = shown.flat_map(|option| option.get_long_and_visible_aliases().unwrap_or_default());
    names.map(str::to_owned).collect()
}

#[test]
fn the_table_has_each_option_of_dockers_and_says_what_is_so() {
    let (table, shown) = (table(), shown());
    for name in DOCKERS.split_whitespace() {
        let is_absent = ABSENT.iter().any(|option| option.name == name);
        let is_shown = shown.iter().any(|one| one == name);
        match table.get(name).map(String::as_str) {
            Some("same" | "differs") => assert!(
                is_shown && !is_absent,
                "there is no --{name}, and the table has it"
            ),
            Some("not there") => assert!(is_absent && !is_shown, "--{name} gets no sentence, or is there"),
            class => unreachable!("the table says {class:?} of --{name}"),
        }
    }
    let known: Vec<&str> = DOCKERS.split_whitespace().collect();
    for name in table.keys() {
        assert!(known.contains(&name.as_str()), "docker has no --{name}");
    }
}

#[test]
fn an_option_that_is_not_there_says_what_to_do_instead() {
    Cli::command().debug_assert();
    let parse = |words: &[&str]| {
        let matches = Cli::command().try_get_matches_from(words).expect("clap takes it");
        let (_, matches) = matches.subcommand().unwrap();
        AbsentArgs::from_arg_matches(matches).map(drop)
    };
    for option in ABSENT {
        let name = format!("--{}", option.name);
        let mut words = vec!["xebec", "run", name.as_str()];
        words.extend(option.takes_value.then_some("x"));
        words.push("image");
        let error = parse(&words).unwrap_err().to_string();
        assert!(error.contains(&name) && error.contains(option.why), "{error}");
    }
    assert!(
        parse(&["xebec", "run", "image", "command", "--privileged"]).is_ok(),
        "that is the command's"
    );
}
