//! The blob cache: what a host keeps of image layers, and how missing ranges come in.
//!
//! * [`store`]: the directory of cached layers, one folder for each (layer, index).
//! * [`layer`]: one cached layer: its sparse data file, its presence bitmap and its span table.
//! * [`presence`]: the bitmap, one bit for each page of the data space.
//! * [`fill`]: brings missing spans in: one fetch for each span, verified before it is written.
//!
//! Readers never come here: the kernel reads the data files. This crate decides what may be read.

pub mod fill;
pub mod layer;
pub mod presence;
pub mod store;
