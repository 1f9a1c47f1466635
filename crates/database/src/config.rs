//! Where the database is, and how connections to it are protected.

use std::path::PathBuf;

/// The metadata database.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseConfig {
    /// SQLite, in a file of a directory that the program has anyway.
    Embedded,
    /// PostgreSQL, for more than one node.
    Postgres {
        /// As libpq takes it: `postgresql://user:password@host/database`, or `host=/run/postgresql user=xebec`.
        url: String,
        /// Whether connections to it are encrypted.
        tls: PostgresTls,
    },
}

/// The settings of TLS to PostgreSQL, beside its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostgresTls {
    /// The protection that the operator wants. If none is given, other hosts are verified, and connections on this host are plain.
    pub wanted: Option<TlsWanted>,
    /// The authorities that may have signed the server's certificate, and no others; those of the system if there is no such file.
    pub ca_file: Option<PathBuf>,
}

/// The protection that an operator wants for connections to PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsWanted {
    /// They are encrypted, and the server's certificate is for its name, by an authority that is trusted.
    Verify,
    /// They are plain.
    Off,
}

/// How connections to PostgreSQL are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// They are encrypted, and the server is verified.
    Verified,
    /// They are plain, and stay on this host.
    Local,
    /// They are plain, and go over a network.
    Plain,
}

// It is not shown: it may hold a password.
impl std::fmt::Debug for DatabaseConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Embedded => "Embedded",
            Self::Postgres { .. } => "Postgres",
        })
    }
}
