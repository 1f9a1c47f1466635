//! `containerd.services.snapshots.v1.Snapshots`, as containerd itself serves it: for each of its snapshotters, in the
//! client's namespace. Messages are those of [`crate::api`].

use std::collections::HashMap;

use tonic::Code;

use super::{Containerd, ContainerdError};
use crate::api::{
    CommitRequest, Empty, Info, InfoResponse, KeyRequest, Mount, MountsResponse, PrepareRequest, SERVICE,
};

/// One of containerd's snapshotters.
#[derive(Clone, Debug)]
pub struct Snapshots {
    containerd: Containerd,
    snapshotter: String,
}

impl Containerd {
    /// The snapshotter by that name in containerd's configuration.
    pub fn snapshots(&self, snapshotter: &str) -> Snapshots {
        Snapshots {
            containerd: self.clone(),
            snapshotter: snapshotter.to_owned(),
        }
    }
}

impl Snapshots {
    /// Makes an active snapshot and gives what is to be mounted; `None` if there is one already, or a committed one by the
    /// name that the labels say it is to have.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn prepare(
        &self,
        key: &str,
        parent: &str,
        labels: HashMap<String, String>,
    ) -> Result<Option<Vec<Mount>>, ContainerdError> {
        let asked = PrepareRequest {
            snapshotter: self.snapshotter.clone(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels,
        };
        let answer: Result<MountsResponse, _> = self.containerd.call(SERVICE, "Prepare", asked).await;
        match answer {
            Ok(answer) => Ok(Some(answer.mounts)),
            Err(error) if error.code() == Some(Code::AlreadyExists) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The facts about a snapshot; `None` if there is none.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn stat(&self, key: &str) -> Result<Option<Info>, ContainerdError> {
        let answer: Result<InfoResponse, _> = self.containerd.call(SERVICE, "Stat", self.of(key)).await;
        match answer {
            Ok(answer) => Ok(answer.info),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a committed snapshot of an active one. That there is one by that name is as good.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn commit(
        &self,
        name: &str,
        key: &str,
        labels: HashMap<String, String>,
    ) -> Result<(), ContainerdError> {
        let asked = CommitRequest {
            snapshotter: self.snapshotter.clone(),
            name: name.to_owned(),
            key: key.to_owned(),
            labels,
            parent: String::new(),
        };
        let answer: Result<Empty, _> = self.containerd.call(SERVICE, "Commit", asked).await;
        match answer {
            Err(error) if error.code() == Some(Code::AlreadyExists) => self.remove(key).await,
            answer => answer.map(|_| ()),
        }
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn remove(&self, key: &str) -> Result<(), ContainerdError> {
        let answer: Result<Empty, _> = self.containerd.call(SERVICE, "Remove", self.of(key)).await;
        answer.map(|_| ())
    }

    fn of(&self, key: &str) -> KeyRequest {
        KeyRequest {
            snapshotter: self.snapshotter.clone(),
            key: key.to_owned(),
        }
    }
}
