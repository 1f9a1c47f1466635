//! Writes the corpora of the tests to a folder, one file each, for the real encoders: `cargo run --package xebec-testkit --example corpus DIRECTORY`.

use xebec_testkit::corpus;

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    std::fs::create_dir_all(&directory)?;
    for name in corpus::NAMES {
        std::fs::write(format!("{directory}/{name}"), corpus::bytes(name))?;
    }
    Ok(())
}
