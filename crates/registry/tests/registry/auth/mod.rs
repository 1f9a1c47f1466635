//! Which caller a request comes from, and what that caller may do.

mod configuration;
mod endpoint;
pub(crate) mod guard;
mod jwks;
mod logins;
mod patterns;
mod rights;
mod scopes;
pub(crate) mod server;
mod signing;
mod tokens;
