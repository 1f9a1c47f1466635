//! Attaching a container to a network, and detaching it.
//!
//! The plugins take as long as the runtime takes to create a container, so they run in a thread of their own
//! meanwhile. The namespace is there before that: the runtime only needs its path.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::attachment::{Attachment, remove_unfinished};
use crate::definition::Definition;
use crate::held_ports::HeldPorts;
use crate::hosts;
use crate::namespace;
use crate::networks::Networks;
use crate::places::make;
use crate::plugin::{Chain, LIMIT, Programs, wait_until_free};
use crate::port::{PortMapping, PortRequest};
use crate::{Addresses, NetworkError, Places};

/// The attachment that a container is to have.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The attachment's name ([`crate::new_attachment_id`]).
    pub id: String,
    /// The container's name.
    pub container: String,
    /// The network.
    pub network: String,
    /// The container's address; by default the next free one.
    pub ip: Option<Ipv4Addr>,
    /// Ports to publish.
    pub ports: Vec<PortRequest>,
    /// Whether more ports come ([`Attaching::publish`]).
    pub more_ports: bool,
    /// The container's names in the network.
    pub names: Vec<String>,
    /// The container's `/etc/hosts`, on the host. It need not be there yet.
    pub hosts: PathBuf,
}

/// A container that is being attached, or is attached. [`Attaching::close`] detaches it; so does
/// [`Places::detach`], after this process.
#[derive(Debug)]
pub struct Attaching {
    places: Places,
    attachment: Attachment,
    ip: Option<Ipv4Addr>,
    ports: HeldPorts,
    /// Where the ports go that publishing plugins wait for.
    told: Option<SyncSender<Vec<PortMapping>>>,
    plugins: Option<JoinHandle<Result<Value, NetworkError>>>,
}

impl Attaching {
    /// Makes the container's namespace, and starts the plugins.
    ///
    /// # Errors
    /// If the network or a plugin is missing, a port is taken, or the kernel makes no namespace. Nothing is left
    /// then.
    pub fn begin(places: &Places, wish: Wish) -> Result<Self, NetworkError> {
        let programs = Programs::of_host();
        make(&places.attachments())?;
        remove_unfinished(places);
        let (definition, mut attaching) = {
            // Nobody removes the network, or takes the same port, before this attachment is on record.
            let _lock = places.lock_networks()?;
            let definition = Networks::new(places).existing(&wish.network)?;
            programs.check(&definition)?;
            let attaching = Attaching::record(places, &definition, wish)?;
            (definition, attaching)
        };
        match attaching.start(programs, definition) {
            Ok(()) => Ok(attaching),
            Err(error) => {
                // No plugin has run.
                attaching.forget();
                Err(error)
            }
        }
    }

    /// Takes the ports, and writes the record.
    fn record(places: &Places, definition: &Definition, wish: Wish) -> Result<Self, NetworkError> {
        if !definition.publishes_ports() && (wish.more_ports || !wish.ports.is_empty()) {
            return Err(NetworkError::NoPorts {
                network: wish.network,
                is_internal: definition.is_internal(),
            });
        }
        let mut ports = HeldPorts::default();
        ports.take(&wish.ports, &Attachment::all(places)?.0)?;
        let attachment = Attachment {
            id: wish.id,
            container: wish.container,
            network: wish.network,
            definition: definition.list().clone(),
            names: wish.names,
            hosts: wish.hosts,
            ports: ports.mappings().to_vec(),
            ..Attachment::default()
        };
        attachment.save(places)?;
        Ok(Attaching {
            places: places.clone(),
            attachment,
            ip: wish.ip,
            ports,
            // A place-holder until the plugins are started.
            told: wish.more_ports.then(|| sync_channel(1).0),
            plugins: None,
        })
    }

    fn start(&mut self, programs: Programs, definition: Definition) -> Result<(), NetworkError> {
        let (made, inode) = namespace::new()?;
        self.attachment.namespace = Some(inode);
        self.attachment.save(&self.places)?;
        let at = self.namespace();
        namespace::mount(&made, &at)?;
        let mut chain = self.places.chain(&self.attachment, programs, definition);
        chain.namespace = Some(at);
        chain.ip = self.ip.map(IpAddr::V4);
        let told = self.told.is_some().then(|| {
            let (sender, receiver) = sync_channel(1);
            self.told = Some(sender);
            receiver
        });
        let known = self.attachment.ports.clone();
        let work = move || chain.add(|| Ok(all_ports(known, told)));
        let thread = std::thread::Builder::new().name("network".into()).spawn(work);
        self.plugins = Some(thread.map_err(NetworkError::system("start a thread"))?);
        Ok(())
    }

    /// The path of the container's network namespace.
    pub fn namespace(&self) -> PathBuf {
        self.attachment.mount_point(&self.places)
    }

    /// The attachment, as far as it is known.
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Publishes these ports, too. Only after [`Wish::more_ports`], and once.
    ///
    /// # Errors
    /// If a port is taken.
    pub fn publish(&mut self, requests: &[PortRequest]) -> Result<(), NetworkError> {
        let Some(told) = self.told.take() else {
            return Ok(());
        };
        {
            let _lock = self.places.lock_networks()?;
            let (mut others, _) = Attachment::all(&self.places)?;
            others.retain(|other| other.id != self.attachment.id);
            self.ports.take(requests, &others)?;
            self.attachment.ports = self.ports.mappings().to_vec();
            self.attachment.save(&self.places)?;
        }
        // The plugins may have failed already, and then receive nothing.
        let _ = told.send(self.attachment.ports.clone());
        Ok(())
    }

    /// Waits until the plugins are done, and writes the names of the network's containers. The container's
    /// `/etc/hosts` is there by now.
    ///
    /// # Errors
    /// If a plugin failed.
    pub fn finish(&mut self) -> Result<(), NetworkError> {
        self.told = None;
        let Some(plugins) = self.plugins.take() else {
            return Ok(());
        };
        let result = join(plugins)?;
        let addresses = Addresses::of(&result);
        if let Some(asked) = self.ip.map(IpAddr::V4)
            && !addresses.ips().any(|ip| ip == asked)
        {
            return Err(NetworkError::OtherAddress {
                network: self.attachment.network.clone(),
                asked,
                got: addresses.addresses.join(", "),
            });
        }
        self.attachment.addresses = Some(addresses);
        self.attachment.result = Some(result);
        self.attachment.save(&self.places)?;
        hosts::publish(&self.places, &self.attachment.network)
    }

    /// Detaches the container. Its processes have ended.
    ///
    /// # Errors
    /// If a plugin failed; the record stays, so that [`Places::detach`] can try again.
    pub fn close(mut self) -> Result<(), NetworkError> {
        // Plugins that wait for ports go on, and end.
        self.told = None;
        if let Some(plugins) = self.plugins.take() {
            // A failure is known already, or nobody asks any more.
            let _ = join(plugins);
        }
        self.places.detach_recorded(&self.attachment)
    }

    /// Removes what there is before the first plugin.
    fn forget(&self) {
        let outcome = match self.attachment.namespace {
            Some(inode) => namespace::unmount(&self.namespace(), inode),
            None => Ok(()),
        };
        if let Err(error) = outcome.and_then(|()| self.attachment.remove(&self.places)) {
            tracing::warn!(%error, "cannot clean up after a network that could not be made");
        }
    }
}

/// The ports that are known, or that are told.
fn all_ports(known: Vec<PortMapping>, told: Option<Receiver<Vec<PortMapping>>>) -> Vec<PortMapping> {
    told.and_then(|told| told.recv().ok()).unwrap_or(known)
}

fn join(plugins: JoinHandle<Result<Value, NetworkError>>) -> Result<Value, NetworkError> {
    plugins.join().unwrap_or_else(|_| {
        let source = io::Error::other("the thread that runs them panicked");
        Err(NetworkError::System {
            doing: "run the plugins of a network",
            source,
        })
    })
}

impl Places {
    /// Detaches a container whose supervisor is gone. Without an attachment of that name there is nothing to do.
    ///
    /// # Errors
    /// If a plugin failed; the record stays.
    pub fn detach(&self, id: &str) -> Result<(), NetworkError> {
        match Attachment::read(self, id)? {
            Some(attachment) => self.detach_recorded(&attachment),
            None => Ok(()),
        }
    }

    /// The plugins of an attachment.
    fn chain(&self, attachment: &Attachment, programs: Programs, definition: Definition) -> Chain {
        let input = attachment.plugin_input(self);
        Chain::new(programs, definition, &attachment.id, &self.addresses(), &input)
    }

    fn detach_recorded(&self, attachment: &Attachment) -> Result<(), NetworkError> {
        let definition = Definition::recorded(&attachment.network, attachment.definition.clone());
        let mut chain = self.chain(attachment, Programs::of_host(), definition);
        let at = attachment.mount_point(self);
        if let Some(inode) = attachment.namespace {
            // Those of a killed command have a time limit no more.
            wait_until_free(&chain.input, 2 * LIMIT).map_err(NetworkError::file("lock", &chain.input))?;
            chain.namespace = namespace::is_mounted(&at, inode).then(|| at.clone());
            chain.del(&attachment.ports, attachment.result.as_ref())?;
            namespace::unmount(&at, inode)?;
        }
        attachment.remove(self)?;
        hosts::publish(self, &attachment.network)
    }
}
