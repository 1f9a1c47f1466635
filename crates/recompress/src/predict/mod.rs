//! Makes a deflate stream again whose encoder is not known: a predictor guesses, token by token, what an encoder would have done with the plain bytes,
//! and *corrections* say where the stream differs.

mod ahead;
mod build;
mod chain;
mod cheapest;
mod damaged;
mod frequencies;
mod habit;
mod lengths;
mod mix;
mod model;
mod parse;
mod profile;
mod range;
mod reader;
mod stretch;
mod tables;
mod tokens;
mod tree;
mod window;
mod writer;

pub(crate) use reader::Reader;
pub(crate) use writer::Writer;
