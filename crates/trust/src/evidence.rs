//! The evidence for a recording.

use serde::{Deserialize, Serialize};

use crate::{Listing, Naming, Policy, Refusal, RepositoryName, Root, Roots, Signing};

/// The evidence for a recording, and so for the pages that it brings. Facts only, judged anew at each use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evidence {
    /// This host made it, from pages whose spans it had verified: as good as any index that they were read by.
    pub own: bool,
    /// A registry lists it beside an image.
    pub listed: Option<Listing>,
    /// A key signed its artifact.
    pub signed: Option<Signing>,
}

impl Evidence {
    /// The evidence of both.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            own: self.own || other.own,
            listed: other.listed.clone().or(self.listed),
            signed: other.signed.clone().or(self.signed),
        }
    }

    /// The root of trust of a recording, for an image as it was named.
    ///
    /// # Errors
    /// [`Refusal`] when that does not suffice.
    pub fn root(
        &self,
        policy: &Policy,
        repository: &RepositoryName,
        naming: Naming,
    ) -> Result<Root, Refusal> {
        if self.own {
            return Ok(Root::Bound);
        }
        let mut roots = Roots::none();
        if let Some(listing) = &self.listed {
            roots = roots.listed(listing, repository);
        }
        if let Some(signing) = &self.signed {
            roots = roots.signed(signing.clone());
        }
        policy
            .admits(repository, naming, &roots)
            .map_err(Refusal::of_recording)
    }
}
