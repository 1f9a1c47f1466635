//! Deflate streams (RFC 1951): what one says, and who wrote it.
//!
//! * [`mod@format`] has the format's symbols and codes, and a reader that keeps blocks and tokens beside the plain bytes.
//! * [`encoders`] write the same streams, bit for bit, as programs that compress layers: Go's `compress/flate`, klauspost's and pgzip, zlib, GNU gzip, pigz.
//!
//! Promise: no input makes anything here panic; memory is bounded; the sizes of pieces make no difference. The bytes that an encoder writes never change.
//!
//! May use: `bitstream`.

pub mod encoders;
pub mod format;
