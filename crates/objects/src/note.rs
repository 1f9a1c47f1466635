//! Notes: the facts about an upload's objects that its record has to hold.

use std::io;

use crate::digest::Hasher;

/// A key that no object has.
pub fn new_key() -> io::Result<String> {
    let name = xebec_kernel::random::random_name(16)?;
    // Directories with fewer names are faster.
    Ok(format!("{}/{name}", &name[..2]))
}

/// The facts that the record of an upload has to hold.
#[derive(Clone, Debug)]
pub struct Note {
    /// The key that it is written under. A process that knows another one is no longer its writer.
    pub object: String,
    /// How many bytes are in the store.
    pub size: u64,
    /// How far it is, if its object does not say it.
    pub progress: Option<Vec<u8>>,
    /// The objects that it has no more.
    pub released: Vec<Released>,
}

/// An object that an upload has no more, and that is garbage.
#[derive(Clone, Debug)]
pub struct Released {
    /// The object.
    pub key: String,
    /// So many bytes, as far as that is known.
    pub size: u64,
}

/// An object that is whole and durable.
pub struct Finished {
    /// Its key.
    pub object: String,
    /// How many bytes it has.
    pub size: u64,
    /// Has hashed all of it.
    pub hasher: Hasher,
    /// The other objects of its upload.
    pub released: Vec<Released>,
}
