//! The only crate with unsafe code: fanotify, mounts, shared memory. It knows no images.
