//! Why bytes are no recipe.

/// Why bytes are no recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRecipe {
    /// They begin otherwise.
    #[error("this is no recipe")]
    Magic,
    /// A version that this program does not know.
    #[error("the recipe has version {0}, and this program knows version 1")]
    Version(u32),
    /// They are not the bytes that were written.
    #[error("the recipe does not have the digest that was written with it")]
    Digest,
    /// They end in the middle, or go on after the end. It was written so.
    #[error("the recipe has a wrong length")]
    Length,
    /// The recipe would take more than the limit.
    #[error("the recipe takes more than {0} bytes")]
    TooLarge(u64),
    /// A number or a section that cannot be. It was written so.
    #[error("the recipe has a number or a section that cannot be")]
    Number,
}
