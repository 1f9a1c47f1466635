//! Tar as it exists in the wild.
