//! Events: what happened to the contents of a registry, for the audit log and for other programs.
//!
//! * `event`: what clients did, and the parts that hear of it ([`Listener`]); `deletion`: what the registry deleted by its rules.
//! * [`audit`]: a log of both, a line of JSON each, with what was refused.
//! * [`webhooks`], `delivery`: notifications of the former to other programs, in the format of CNCF distribution.
//!
//! Promise: a listener never makes a request wait.
//!
//! May use: `access`, whose refusals are audited, `settings` and `kernel`. It knows neither the API nor the store.

pub mod audit;
mod counters;
mod deletion;
mod delivery;
mod event;
mod reports;
pub mod webhooks;

pub use deletion::{Gone, Thing};
pub use event::{Event, EventKind, Listener, Origin};
pub use reports::Reports;
