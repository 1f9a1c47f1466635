//! The binary `xebec`.

fn main() {}
