//! Decisions about a container's network before anything of the container exists.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use xebec_kernel::file::FileIdentity;
use xebec_network::{Definition, Networks, new_attachment_id};

use super::net::{Net, RecordedNetwork};
use crate::{Directories, Record, RecordError, RunError, RunOptions, record};

/// The network that a container is to get.
#[derive(Debug)]
pub(crate) enum NetworkPlan {
    /// The host's.
    Host,
    /// A namespace that the runtime makes.
    None,
    /// A namespace of its own in this network.
    Own(Definition),
    /// That of another container.
    Joined(Joined),
}

/// The network of another container.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Its namespace: as long as this is open, it is the one that was looked at.
    namespace: File,
    /// Where that container's own `resolv.conf`, `hosts` and `hostname` are.
    pub(crate) files: PathBuf,
    /// Whether it is the host's.
    is_hosts: bool,
}

/// The network namespace in a container's `config.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// The host's.
    Host,
    /// The runtime makes one.
    New,
    /// One that Xebec has made for the container.
    Own(PathBuf),
    /// One that another container has, too.
    Shared(PathBuf),
}

impl NetworkPlan {
    /// Looks whether the container can have the network that the user asks for.
    pub(crate) fn decide(options: &RunOptions, dirs: &Directories) -> Result<Self, RunError> {
        refuse_without_effect(options)?;
        Ok(match &options.net {
            Net::Host => NetworkPlan::Host,
            Net::None => NetworkPlan::None,
            Net::Network(name) => NetworkPlan::Own(Networks::new(&dirs.network_places()).check(name)?),
            Net::Container(name) => NetworkPlan::Joined(join(name, dirs)?),
        })
    }

    /// Whether the container sees the host's network.
    pub(crate) fn is_hosts(&self) -> bool {
        match self {
            NetworkPlan::Host => true,
            NetworkPlan::Joined(joined) => joined.is_hosts,
            NetworkPlan::None | NetworkPlan::Own(_) => false,
        }
    }

    /// The container's record of it from the beginning.
    pub(crate) fn to_record(&self, net: &Net, container: &str) -> Result<RecordedNetwork, RecordError> {
        let attachment = match self {
            NetworkPlan::Own(_) => {
                Some(
                    new_attachment_id(container).map_err(|source| RecordError::Random {
                        id: container.to_owned(),
                        source,
                    })?,
                )
            }
            _ => None,
        };
        Ok(RecordedNetwork {
            name: net.to_string(),
            attachment,
            ..RecordedNetwork::default()
        })
    }

    /// The container's network namespace; `own` is the one that was made for it.
    pub(crate) fn namespace(&self, own: Option<PathBuf>) -> Namespace {
        match self {
            NetworkPlan::Host => Namespace::Host,
            NetworkPlan::None => Namespace::New,
            NetworkPlan::Own(_) => own.map_or(Namespace::New, Namespace::Own),
            NetworkPlan::Joined(joined) if joined.is_hosts => Namespace::Host,
            NetworkPlan::Joined(joined) => {
                // The runtime is another process. It reads the descriptor of this one.
                let process = rustix::process::getpid().as_raw_pid();
                let descriptor = joined.namespace.as_raw_fd();
                Namespace::Shared(format!("/proc/{process}/fd/{descriptor}").into())
            }
        }
    }
}

/// Refuses options that the network cannot give.
fn refuse_without_effect(options: &RunOptions) -> Result<(), RunError> {
    let asked = &options.network;
    let of_own = [
        ("--publish", !asked.ports.is_empty()),
        ("--publish-all", asked.publish_all),
        ("--ip", asked.ip.is_some()),
        ("--network-alias", !asked.aliases.is_empty()),
    ];
    let of_names = [
        ("--hostname", options.hostname.is_some()),
        ("--add-host", !asked.hosts.is_empty()),
        ("--dns", !asked.resolver.servers.is_empty()),
        ("--dns-search", !asked.resolver.search.is_empty()),
        ("--dns-option", !asked.resolver.options.is_empty()),
    ];
    let refused = match &options.net {
        Net::Network(_) => None,
        Net::Host | Net::None => of_own.iter().find(|(_, is_asked)| *is_asked),
        Net::Container(_) => of_own.iter().chain(&of_names).find(|(_, is_asked)| *is_asked),
    };
    let Some((option, _)) = refused else {
        return Ok(());
    };
    Err(RunError::NetworkOption {
        option,
        net: options.net.to_string(),
        reason: match options.net {
            Net::Host => {
                "the container's ports and addresses are the host's own; leave the option out, or use --network bridge"
            }
            Net::Container(_) => {
                "the container's network is the other one's; give the option to that container"
            }
            _ => {
                "the container reaches nothing and is not reached; leave the option out, or use --network bridge"
            }
        },
    })
}

/// Opens the network of a running container.
fn join(name: &str, dirs: &Directories) -> Result<Joined, RunError> {
    let missing = || RunError::NoSuchNetworkContainer(name.to_owned());
    let running = record::list(&dirs.run)?.records;
    let found = running
        .into_iter()
        .find(|record| record.id == name)
        .ok_or_else(missing)?;
    let pid = found.pid.ok_or_else(missing)?;
    let path = format!("/proc/{pid}/ns/net");
    let failed = || RunError::file("open the network of the container", Path::new(&path));
    let namespace = File::open(&path).map_err(failed())?;
    // Its number may have become another process's meanwhile.
    if !Record::is_running(&found) {
        return Err(missing());
    }
    let own = FileIdentity::at(Path::new("/proc/self/ns/net")).map_err(failed())?;
    let its = FileIdentity::of(&namespace).map_err(failed())?;
    Ok(Joined {
        namespace,
        files: dirs.bundles().join(name).join("etc"),
        is_hosts: own == its,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::NetworkOptions;

    #[test]
    fn an_option_that_the_network_cannot_give_is_refused() {
        let refused = |net: &str, network: NetworkOptions| {
            let options = RunOptions {
                net: net.parse().unwrap(),
                network,
                ..RunOptions::default()
            };
            refuse_without_effect(&options)
                .err()
                .map(|error| error.to_string())
        };
        let ip = || NetworkOptions {
            ip: Some([10, 4, 0, 2].into()),
            ..NetworkOptions::default()
        };
        for net in ["host", "none", "container:a"] {
            let error = refused(net, ip()).unwrap();
            assert!(error.contains("--ip") && error.contains(net), "{error}");
            assert_eq!(refused(net, NetworkOptions::default()), None);
        }
        assert_eq!(refused("bridge", ip()), None);
        let hosts = || NetworkOptions {
            hosts: vec!["a:192.0.2.1".parse().unwrap()],
            ..NetworkOptions::default()
        };
        assert!(refused("container:a", hosts()).unwrap().contains("--add-host"));
        assert_eq!(refused("host", hosts()), None);
    }

    #[test]
    fn a_container_that_does_not_run_cannot_be_joined() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let error = join("web", &dirs).unwrap_err().to_string();
        assert!(error.contains("web") && error.contains("xebec ps"), "{error}");
    }

    #[test]
    fn the_hosts_network_is_recognized_when_it_is_joined() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let mut record = Record::new("web", Path::new("/nowhere/web")).unwrap();
        record.claim(&dirs.run).unwrap();
        record.set_pid(std::process::id() as i32).unwrap();
        record.save(&dirs.run).unwrap();
        let plan = NetworkPlan::Joined(join("web", &dirs).unwrap());
        assert!(plan.is_hosts());
        assert_eq!(plan.namespace(None), Namespace::Host);
    }
}
