//! What was done by whom: a line of JSON for each request that changes something.
