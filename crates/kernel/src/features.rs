//! What this kernel can do, asked by trying it.
