//! Tar as it exists in the wild: a push parser without I/O.
