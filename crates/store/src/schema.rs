//! The schema of the records: migrations, numbered from 1, forwards only. One that was released is never changed.

use xebec_database::Migrations;

/// They are written once for both engines.
pub(crate) const MIGRATIONS: Migrations = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
    include_str!("migrations/0005.sql"),
    include_str!("migrations/0006.sql"),
];
