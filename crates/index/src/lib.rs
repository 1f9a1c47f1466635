//! Blob to LayerIndex in one streaming pass, and spans back to plain bytes.

pub mod tar;
pub mod toc;
