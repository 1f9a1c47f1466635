//! Has the copies of a registry's blobs where its rules say, in the form that they say.
//!
//! * [`Placer`] looks at one blob or pack after the other of which something has changed, and carries out what is missing.
//! * [`plan()`] tells what that would change, before anything does.
//! * [`Popularity`] counts pulls, and has the store know which blobs are popular.
//!
//! | module | what it has |
//! | --- | --- |
//! | `steps` | from what a blob has and what is wanted of it to the steps that are missing; pure |
//! | `placer` | carries the steps out |
//! | `pauses` | when what has failed is tried again |
//! | `plan` | adds them up |
//! | `popularity` | which blobs are pulled often |
//! | `rules`, `forms` | the rules that count now, and the form that they give a blob |
//!
//! Promise: nothing goes before all that is wanted is there and was read again. A process that ends between two steps leaves a blob that the next look
//! finishes. Memory for counts of pulls, and for what has failed, is bounded.
//! A place that cannot be written is asked seldom, and keeps nothing else waiting.
//!
//! May use: `kernel`, `placement`, `policy`, `store`. It knows no HTTP, and takes no blob apart: that is another crate's work, which asks [`FormsByRules`] how.

mod forms;
mod pauses;
mod placer;
mod plan;
mod popularity;
mod rules;
mod steps;

pub use forms::FormsByRules;
pub use placer::{Placer, Worked};
pub use plan::{Change, Plan, Planned, plan};
pub use popularity::Popularity;
pub use rules::Rules;
