//! Notes: the facts about an upload's objects that its record has to hold.

use std::io;

use crate::digest::Hasher;

/// A key that no object has.
pub(crate) fn new_key() -> io::Result<String> {
    let name = xebec_kernel::random::random_name(16)?;
    // Directories with fewer names are faster.
    Ok(format!("{}/{name}", &name[..2]))
}

/// The facts that the record of an upload has to hold.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// The key that it is written under. A process that knows another one is no longer its writer.
    pub(crate) object: String,
    /// How many bytes are in the store.
    pub(crate) size: u64,
    /// How far it is, if its object does not say it.
    pub(crate) progress: Option<Vec<u8>>,
    /// The objects that it has no more.
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
    /// The other objects of its upload.
    pub(crate) released: Vec<Released>,
}
