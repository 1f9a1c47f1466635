//! The record of a container's attachment: one JSON file in the run directory.
//!
//! It is written before the first plugin runs, again when the last one has answered, and removed when the last
//! one has taken back what it did. It holds the network's definition as it was then, so that the container can
//! be detached whatever has become of the network's file.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use xebec_kernel::file::{read_limited, remove_abandoned, write_for_this_boot};

use crate::name::is_attachment_id;
use crate::places::make;
use crate::port::PortMapping;
use crate::{Addresses, NetworkError, Places};

/// Largest record that is read: a definition and a result have a mebibyte each at most.
const LIMIT: u64 = 8 << 20;

/// A container's attachment to a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its name, by which plugins know the container.
    pub id: String,
    /// The container's name.
    pub container: String,
    /// The network's name.
    pub network: String,
    /// The network's definition, as it was then.
    pub definition: Map<String, Value>,
    /// The inode of the container's network namespace. Absent until it is mounted.
    #[serde(default)]
    pub namespace: Option<u64>,
    /// The names of the container in the network, its own name first.
    #[serde(default)]
    pub names: Vec<String>,
    /// The container's `/etc/hosts`, on the host.
    #[serde(default)]
    pub hosts: PathBuf,
    /// The ports that are published.
    #[serde(default)]
    pub ports: Vec<PortMapping>,
    /// The container's addresses. Absent until the last plugin has answered.
    #[serde(default)]
    pub addresses: Option<Addresses>,
    /// The last plugin's result.
    #[serde(default)]
    pub result: Option<Value>,
}

impl Attachment {
    /// Every attachment that can be read, and an error for each of the others.
    ///
    /// # Errors
    /// If the directory cannot be read. Without such a directory there are none.
    pub fn all(places: &Places) -> Result<(Vec<Attachment>, Vec<NetworkError>), NetworkError> {
        let directory = places.attachments();
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((found, unreadable)),
            entries => entries.map_err(NetworkError::file("read", &directory))?,
        };
        for entry in entries {
            let entry = entry.map_err(NetworkError::file("read", &directory))?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(id) = id.filter(|id| is_attachment_id(id)) else {
                continue;
            };
            match Attachment::read(places, id) {
                Ok(attachment) => found.extend(attachment),
                Err(error) => unreadable.push(error),
            }
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok((found, unreadable))
    }

    /// The attachment of that name; `None` if there is none.
    ///
    /// # Errors
    /// If its record cannot be read.
    pub fn read(places: &Places, id: &str) -> Result<Option<Attachment>, NetworkError> {
        let path = path(places, id);
        let text = match read_limited(&path, LIMIT) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(NetworkError::file("read", &path)(error)),
        };
        let wrong = |reason: String| NetworkError::Attachment {
            path: path.clone(),
            reason,
        };
        let read: Attachment = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match read.id == id {
            true => Ok(Some(read)),
            false => Err(wrong("it names another attachment".to_owned())),
        }
    }

    /// Writes the record, or replaces it.
    pub(crate) fn save(&self, places: &Places) -> Result<(), NetworkError> {
        make(&places.attachments())?;
        let path = path(places, &self.id);
        let text = serde_json::to_vec_pretty(self);
        let text = text.map_err(|error| NetworkError::file("write", &path)(error.into()))?;
        write_for_this_boot(&path, &text).map_err(NetworkError::file("write", &path))
    }

    /// Removes the record, and the file for plugins.
    pub(crate) fn remove(&self, places: &Places) -> Result<(), NetworkError> {
        for path in [self.plugin_input(places), path(places, &self.id)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(NetworkError::file("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The file that plugins get on standard input.
    pub(crate) fn plugin_input(&self, places: &Places) -> PathBuf {
        places.attachments().join(format!("{}.input", self.id))
    }

    /// The mount point of its namespace.
    pub(crate) fn mount_point(&self, places: &Places) -> PathBuf {
        places.namespaces().join(&self.id)
    }
}

/// Removes records that a killed process left unfinished.
pub(crate) fn remove_unfinished(places: &Places) {
    remove_abandoned(&places.attachments(), 0);
}

fn path(places: &Places, id: &str) -> PathBuf {
    places.attachments().join(format!("{id}.json"))
}
