//! Nothing: a package must have something to build.
