//! Writes the seeds that are generated: `cargo run --package xebec-fuzz --example seeds`, from the repository's root. The
//! same bytes each time; seeds under other names (those of mended defects) are left alone.

mod archives;
mod documents;
mod kernel;
mod layers;
mod output;
mod recipes;
mod recompress;
mod recordings;
mod runner;
mod tables_of_contents;
mod trust;

fn main() -> Result<(), output::Failure> {
    layers::layers()?;
    recordings::recordings()?;
    tables_of_contents::tables_of_contents()?;
    documents::documents()?;
    runner::runner()?;
    trust::trust()?;
    recipes::recipes()?;
    kernel::kernel()?;
    recompress::recompress()
}
