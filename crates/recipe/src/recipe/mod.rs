//! How a blob is put together: the frame, the chunks in order, and the description of the compression.

pub(crate) mod build;
pub(crate) mod parts;

pub use build::{CannotBuild, RecipeBuilder};
pub use parts::{Blob, Limits, Part, PartIn, Recipe};
