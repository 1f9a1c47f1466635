//! Which caller a request comes from, and what that caller may do.
//!
//! Each request passes [`Guard::check`] with all that it needs before anything else is looked at, so that a caller without rights
//! learns nothing of what exists.
//!
//! * [`settings`]: what the configuration says; [`rights`]: who may do what by that.
//! * [`login`]: passwords of the htpasswd file ([`htpasswd`], [`password`]).
//! * [`token`]: whether a token is sound, by the keys of its issuer ([`jwk`], [`jwks`]).
//! * [`endpoint`]: the registry's own tokens, for users and for identities of others.
//! * [`guard`]: all of this for one request; `lists`: what lists of repositories show.
//! * [`outgoing`]: requests that a registry itself makes, to issuers of tokens and to whom it tells what happened: no further than
//!   the configuration says.
//!
//! Promises: a caller without rights gets the same answer whether a thing exists or not; [`rights`] neither reads nor writes anything.
//!
//! May use: `settings` and `kernel`. It knows neither the API nor the store.

pub mod action;
pub mod challenge;
pub mod credentials;
pub mod endpoint;
pub mod guard;
pub mod htpasswd;
pub mod identity;
pub mod jwk;
pub mod jwks;
mod lists;
pub mod login;
pub mod oidc;
pub mod outgoing;
mod own_tokens;
pub mod password;
mod places;
pub mod public_key;
mod realm;
pub mod refusal;
pub mod rights;
pub mod scope;
pub mod settings;
mod spki;
pub mod token;
mod token_key;
mod waiting;

pub use action::{Action, Need};
pub use guard::{Guard, GuardError, Peer};
pub use identity::Caller;
pub use refusal::{Observer, Refusal};
pub use waiting::client_of;
