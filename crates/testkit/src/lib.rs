//! Image generators, a registry that misbehaves on purpose, and other tools of the tests.
