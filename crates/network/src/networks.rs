//! The networks of a root: files in `<root>/networks`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use xebec_kernel::file::{read_limited, write_atomically};
use xebec_kernel::network::{address_of, remove_bridge};

use crate::attachment::Attachment;
use crate::definition::{Definition, NewNetwork};
use crate::host::Host;
use crate::name::{self, DEFAULT_NETWORK, is_network_name};
use crate::plugin::Programs;
use crate::subnet::Subnet;
use crate::{NetworkError, Places};

/// Largest definition that is read. Xebec's own have 700 bytes.
const LIMIT: u64 = 1 << 20;

/// The end of the name of a definition's file.
const SUFFIX: &str = ".conflist";

/// The beginning of the names of Xebec's bridges; a number follows.
const BRIDGE: &str = "xebec";

/// The networks of a root.
#[derive(Clone, Debug)]
pub struct Networks {
    places: Places,
}

impl Networks {
    /// Those of these directories.
    pub fn new(places: &Places) -> Self {
        Networks {
            places: places.clone(),
        }
    }

    /// The network of that name. The default network is made if it is not there.
    ///
    /// # Errors
    /// [`NetworkError::Unknown`], or what is wrong with its definition.
    pub fn find(&self, name: &str) -> Result<Definition, NetworkError> {
        if let Some(found) = self.read(name)? {
            return Ok(found);
        }
        if name != DEFAULT_NETWORK {
            return Err(NetworkError::Unknown(name.to_owned()));
        }
        match self.create(name, &NewNetwork::default()) {
            // Another process made it meanwhile.
            Err(NetworkError::Exists(_)) => self
                .read(name)?
                .ok_or_else(|| NetworkError::Unknown(name.to_owned())),
            made => made,
        }
    }

    /// The network of that name, which is there.
    ///
    /// # Errors
    /// [`NetworkError::Unknown`], or what is wrong with its definition.
    pub fn existing(&self, name: &str) -> Result<Definition, NetworkError> {
        self.read(name)?
            .ok_or_else(|| NetworkError::Unknown(name.to_owned()))
    }

    /// Refuses a network of which a plugin is not installed, before anything else of a container is begun.
    ///
    /// # Errors
    /// As [`Networks::find`], and [`NetworkError::NoPlugin`].
    pub fn check(&self, name: &str) -> Result<Definition, NetworkError> {
        let definition = self.find(name)?;
        Programs::of_host().check(&definition)?;
        Ok(definition)
    }

    /// All networks by their names, and what is wrong with the definitions that cannot be used.
    ///
    /// # Errors
    /// If the directory cannot be read. Without such a directory there are no networks.
    pub fn list(&self) -> Result<(BTreeMap<String, Definition>, Vec<NetworkError>), NetworkError> {
        let directory = &self.places.networks;
        let (mut networks, mut unusable) = (BTreeMap::new(), Vec::new());
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((networks, unusable)),
            entries => entries.map_err(NetworkError::file("read", directory))?,
        };
        for entry in entries {
            let entry = entry.map_err(NetworkError::file("read", directory))?;
            let file = entry.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(SUFFIX));
            let Some(name) = name.filter(|name| is_network_name(name)) else {
                continue;
            };
            match self.read(name) {
                Ok(found) => networks.extend(found.map(|found| (name.to_owned(), found))),
                Err(error) => unusable.push(error),
            }
        }
        Ok((networks, unusable))
    }

    /// Makes a network.
    ///
    /// # Errors
    /// If there is one of that name, or its subnet collides with what the host or another network uses.
    pub fn create(&self, name: &str, new: &NewNetwork) -> Result<Definition, NetworkError> {
        name::check(name)?;
        let _lock = self.places.lock_networks()?;
        let path = self.path(name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(NetworkError::Exists(name.to_owned()));
        }
        let definition = choose(name, new, &Host::look(), &self.list()?.0)?;
        write_atomically(&path, definition.to_text().as_bytes())
            .map_err(NetworkError::file("write", &path))?;
        Ok(definition)
    }

    /// Removes a network, and its bridge.
    ///
    /// # Errors
    /// [`NetworkError::Used`] if a container is attached to it, and [`NetworkError::Unknown`].
    pub fn remove(&self, name: &str) -> Result<(), NetworkError> {
        name::check(name)?;
        let _lock = self.places.lock_networks()?;
        let containers = self.containers(name)?;
        if !containers.is_empty() {
            let network = name.to_owned();
            return Err(NetworkError::Used { network, containers });
        }
        let path = self.path(name);
        // A definition that cannot be read can be removed.
        let definition = self.read(name).unwrap_or_default();
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(NetworkError::Unknown(name.to_owned()));
            }
            removed => removed.map_err(NetworkError::file("remove", &path))?,
        }
        let addresses = self.places.addresses().join(name);
        match xebec_kernel::remove::remove_tree(&addresses) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(NetworkError::file("remove", &addresses)(error));
            }
            _ => {}
        }
        definition.map_or(Ok(()), |definition| remove_its_bridge(&definition))
    }

    /// Removes all networks but the default one that no container is attached to. Returns their names, and what
    /// was refused.
    ///
    /// # Errors
    /// If the networks cannot be listed.
    pub fn prune(&self) -> Result<(Vec<String>, Vec<NetworkError>), NetworkError> {
        let (mut removed, mut failed) = (Vec::new(), Vec::new());
        let (networks, _) = self.list()?;
        for name in networks.into_keys().filter(|name| name != DEFAULT_NETWORK) {
            match self.remove(&name) {
                Ok(()) => removed.push(name),
                Err(NetworkError::Used { .. }) => {}
                Err(error) => failed.push(error),
            }
        }
        Ok((removed, failed))
    }

    /// The names of the containers that are attached to a network.
    ///
    /// # Errors
    /// If the attachments cannot be read.
    pub fn containers(&self, network: &str) -> Result<Vec<String>, NetworkError> {
        let (attachments, unreadable) = Attachment::all(&self.places)?;
        let its = attachments
            .into_iter()
            .filter(|attachment| attachment.network == network);
        let mut names: Vec<String> = its.map(|attachment| attachment.container).collect();
        names.sort();
        // It may be one of this network.
        match unreadable.into_iter().next() {
            Some(error) if names.is_empty() => Err(error),
            _ => Ok(names),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.places.networks.join(format!("{name}{SUFFIX}"))
    }

    fn read(&self, name: &str) -> Result<Option<Definition>, NetworkError> {
        name::check(name)?;
        let path = self.path(name);
        match read_limited(&path, LIMIT) {
            Ok(text) => Definition::parse(name, &path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(NetworkError::file("read", &path)(error)),
        }
    }
}

/// Chooses what the user leaves open, so that it collides with nothing.
fn choose(
    name: &str,
    new: &NewNetwork,
    host: &Host,
    others: &BTreeMap<String, Definition>,
) -> Result<Definition, NetworkError> {
    let collision = |subnet: Subnet| {
        let of_other = others.iter().find_map(|(name, other)| {
            let theirs = other.subnets().into_iter().find(|(its, _)| its.overlaps(subnet));
            theirs.map(|(its, _)| format!("{its}, the subnet of network {name}"))
        });
        of_other.or_else(|| host.collision(subnet).map(str::to_owned))
    };
    let subnet = match new.subnet {
        Some(subnet) => match collision(subnet) {
            Some(what) => {
                return Err(NetworkError::Collision {
                    subnet: subnet.to_string(),
                    what,
                });
            }
            None => subnet,
        },
        None => Subnet::candidates()
            .find(|subnet| {
                new.gateway.is_none_or(|gateway| subnet.contains(gateway)) && collision(*subnet).is_none()
            })
            .ok_or(NetworkError::NoSubnet)?,
    };
    let gateway = new.gateway.unwrap_or(subnet.first_host());
    if !subnet.has_host(gateway) {
        return Err(NetworkError::Gateway {
            gateway: gateway.to_string(),
            subnet: subnet.to_string(),
        });
    }
    let is_taken = |bridge: &str| {
        host.has_interface(bridge) || others.values().any(|other| other.bridge() == Some(bridge))
    };
    let bridge = (0..=u32::MAX)
        .map(|number| format!("{BRIDGE}{number}"))
        .find(|bridge| !is_taken(bridge))
        .unwrap_or_default();
    Ok(Definition::new(name, &bridge, subnet, gateway, new.internal))
}

/// Removes the bridge of a network, if it is one that Xebec named, with the address that the network has there.
fn remove_its_bridge(network: &Definition) -> Result<(), NetworkError> {
    let number = |bridge: &str| bridge.strip_prefix(BRIDGE)?.parse::<u32>().ok();
    let Some(bridge) = network.bridge().filter(|bridge| number(bridge).is_some()) else {
        return Ok(());
    };
    let failed = |source| NetworkError::Bridge {
        network: network.name().to_owned(),
        bridge: bridge.to_owned(),
        source,
    };
    let wanted = if network.is_internal() {
        None
    } else {
        network.gateway()
    };
    if address_of(bridge).map_err(failed)? != wanted {
        return Ok(());
    }
    match remove_bridge(bridge) {
        // No container was ever attached, since the host's start.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NODEV | Errno::NXIO)) => Ok(()),
        removed => removed.map_err(failed),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
        eth0\t0000040A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
    const INTERFACES: &str = "\n\nxebec0: 1\n";

    fn networks(directory: &tempfile::TempDir) -> Networks {
        Networks::new(&Places::new(
            &directory.path().join("root"),
            &directory.path().join("run"),
        ))
    }

    fn new(subnet: &str) -> NewNetwork {
        NewNetwork {
            subnet: Some(subnet.parse().unwrap()),
            ..NewNetwork::default()
        }
    }

    #[test]
    fn a_new_network_collides_with_nothing() {
        let host = Host::from_texts(ROUTES, INTERFACES, "");
        let mut others = BTreeMap::new();
        for (name, subnet, bridge) in [("one", "10.4.1.0/24", "xebec1"), ("two", "10.4.2.0/24", "xebec2")] {
            let made = choose(name, &NewNetwork::default(), &host, &others).unwrap();
            assert_eq!(made.subnets()[0].0.to_string(), subnet);
            assert_eq!(made.bridge(), Some(bridge));
            others.insert(name.to_owned(), made);
        }
        for (subnet, what) in [("10.4.0.0/16", "network one"), ("10.4.0.128/25", "eth0")] {
            let error = choose("x", &new(subnet), &host, &others).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("--subnet"), "{error}");
        }
        let gateway = |gateway: &str| NewNetwork {
            gateway: Some(gateway.parse().unwrap()),
            ..NewNetwork::default()
        };
        let chosen = choose("x", &gateway("10.4.9.7"), &host, &others).unwrap();
        assert_eq!(chosen.subnets()[0].0.to_string(), "10.4.9.0/24");
        assert_eq!(chosen.gateway(), Some("10.4.9.7".parse().unwrap()));
        assert!(choose("x", &gateway("10.4.9.255"), &host, &others).is_err());
    }

    #[test]
    fn networks_are_made_listed_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let networks = networks(&directory);
        assert!(networks.list().unwrap().0.is_empty());
        let made = networks.create("web", &new("10.77.0.0/24")).unwrap();
        assert_eq!(networks.find("web").unwrap(), made);
        assert!(matches!(
            networks.create("web", &new("10.78.0.0/24")),
            Err(NetworkError::Exists(_))
        ));
        let default = networks.find("bridge").unwrap();
        assert_eq!(networks.find("bridge").unwrap(), default, "it is made once");
        assert!(matches!(networks.find("other"), Err(NetworkError::Unknown(_))));
        assert!(matches!(networks.find("../x"), Err(NetworkError::Name(_))));
        fs::write(directory.path().join("root/networks/broken.conflist"), "{").unwrap();
        let (listed, unusable) = networks.list().unwrap();
        assert_eq!(listed.keys().collect::<Vec<_>>(), ["bridge", "web"]);
        assert!(unusable[0].to_string().contains("broken.conflist"));
        let (removed, failed) = networks.prune().unwrap();
        assert_eq!((removed, failed.len()), (vec!["web".to_owned()], 0));
        networks.remove("broken").unwrap();
        networks.remove("bridge").unwrap();
        assert!(matches!(networks.remove("bridge"), Err(NetworkError::Unknown(_))));
    }
}
