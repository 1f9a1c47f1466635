//! What a request to a registry says, read without I/O.
//!
//! * [`route`]: from a path to the thing that is asked for.
//! * [`request`]: queries, and headers that say which part of a thing is meant.
//!
//! Promise: nothing that a client sends makes this panic, and each length has a limit that is named here.
//!
//! May use: `names`, and `objects` for digests. It knows no HTTP library, and looks nothing up.

pub mod request;
pub mod route;
