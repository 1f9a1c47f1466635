//! What the objects of an upload have its record say.

use std::io;

use crate::digest::Hasher;

/// A key that no object has.
pub(crate) fn new_key() -> io::Result<String> {
    let name = xebec_kernel::random::random_name(16)?;
    // Directories with fewer names are faster.
    Ok(format!("{}/{name}", &name[..2]))
}

/// What the record of an upload has to say.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// The key that it is written under. A process that knows another one is no longer its writer.
    pub(crate) object: String,
    /// How many bytes are in the store.
    pub(crate) size: u64,
    /// How far it is, if its object does not say it.
    pub(crate) progress: Option<Vec<u8>>,
    /// What it has no more.
    pub(crate) released: Vec<Released>,
}

/// An object that an upload has no more, and that is garbage.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    pub(crate) key: String,
    /// So many bytes, as far as that is known.
    pub(crate) size: u64,
}

/// An object that is whole and durable.
pub(crate) struct Finished {
    pub(crate) object: String,
    pub(crate) size: u64,
    /// Has hashed all of it.
    pub(crate) hasher: Hasher,
    /// What else its upload had.
    pub(crate) released: Vec<Released>,
}
