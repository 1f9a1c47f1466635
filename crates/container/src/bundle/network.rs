//! A container's attachment to its network: begun before the image is there, finished before the container is created.

use std::collections::BTreeSet;

use xebec_network::{Attaching, Resolver, Wish};

use super::Bundle;
use crate::network::{NetworkPlan, host_name};
use crate::{ImageConfig, RunError, RunOptions};

impl Bundle {
    /// Whether the container is on the host's network.
    pub(crate) fn is_on_hosts_network(&self) -> bool {
        self.network.is_hosts()
    }

    /// Begins to attach the container to its network, if it has one of its own. A thread does the rest.
    pub(crate) fn begin_network(&mut self, options: &RunOptions) -> Result<(), RunError> {
        let (NetworkPlan::Own(network), Some(id)) = (&self.network, &self.record.network.attachment) else {
            return Ok(());
        };
        let host_name = host_name(options, &self.network, self.id())?;
        let mut names = vec![self.id().to_owned()];
        names.extend(options.network.aliases.iter().chain([&host_name]).cloned());
        names.push(self.container_id().to_owned());
        let mut known = BTreeSet::new();
        names.retain(|name| known.insert(name.clone()));
        let wish = Wish {
            id: id.clone(),
            container: self.id().to_owned(),
            network: network.name().to_owned(),
            ip: options.network.ip,
            ports: options.network.ports.clone(),
            more_ports: options.network.publish_all,
            names,
            hosts: self.path.join("etc/hosts"),
        };
        self.attaching = Some(Attaching::begin(&self.dirs.network_places(), wish)?);
        if let Some(warning) = Resolver::of_host(&options.network.resolver, true).warning {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// Publishes the ports that the image exposes, if the user asks for that.
    pub(crate) fn publish_exposed(
        &mut self,
        options: &RunOptions,
        image: &ImageConfig,
    ) -> Result<(), RunError> {
        if let Some(attaching) = &mut self.attaching
            && options.network.publish_all
        {
            attaching.publish(&image.ports_to_publish(&options.network.ports))?;
        }
        Ok(())
    }

    /// Waits until the container is attached to its network, and records its addresses.
    pub(crate) fn finish_network(&mut self) -> Result<(), RunError> {
        let Some(attaching) = &mut self.attaching else {
            return Ok(());
        };
        attaching.finish()?;
        let attachment = attaching.attachment();
        self.record.network.addresses.clone_from(&attachment.addresses);
        self.record.network.ports.clone_from(&attachment.ports);
        Ok(self.record.save(&self.dirs.run)?)
    }

    /// Detaches the container from its network. Changes that cannot be taken back are on record, and a later cleanup
    /// tries again; they must not keep the container's files.
    pub(super) fn close_network(&mut self) {
        if let Some(Err(error)) = self.attaching.take().map(Attaching::close) {
            tracing::warn!(%error, id = self.id(), "cannot detach a container from its network; the next `xebec run` tries again");
        }
    }
}
