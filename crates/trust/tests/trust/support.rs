//! Keys, names and files that the tests of this crate share.

use std::fs;
use std::path::Path;

use xebec_trust::{PrivateKey, RepositoryName};

pub(crate) fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/trust/data")
        .join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn repository(name: &str) -> RepositoryName {
    RepositoryName::from_docker_reference(name).unwrap()
}

pub(crate) fn key(number: u8) -> PrivateKey {
    PrivateKey::from_secret(&[number; 32]).unwrap()
}
