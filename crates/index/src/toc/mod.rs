//! Layer indexes from a blob's own table of contents.
