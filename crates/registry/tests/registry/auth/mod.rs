//! The caller of a request, and the rights of that caller.

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
