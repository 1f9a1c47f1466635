//! References, manifests, and the registry client.
