//! Lists of repositories: what of them a caller is shown, and where the next page goes on.

use crate::action::{Action, Actions, Need};
use crate::guard::{Guard, Inner};
use crate::identity::Caller;
use crate::places;

impl Guard {
    /// Whether a list of repositories that the caller was let in to shows this one: whether the rules let them pull from it. A token for
    /// the list names no repositories. One of a token service that grants the list grants all of it.
    pub fn shows(&self, caller: &Caller, repository: &str) -> bool {
        let allowed = self.inner().allowed_on(repository, &caller.identity);
        allowed.contain(Actions::PULL)
    }

    /// Where a list goes on after a name: that name, if its reader may see it, or else a place that does not tell it. `None` if the
    /// kernel gives no random bytes.
    pub fn place_after(&self, name: &str, may_see: bool) -> Option<String> {
        match may_see {
            true => Some(name.to_owned()),
            false => self.inner().places.as_ref()?.after(name),
        }
    }

    /// After which name a list goes on at such a place. `None` for a place that this registry has not made, or made by another key.
    pub fn name_at(&self, place: &str) -> Option<String> {
        match places::is_place(place) {
            true => self.inner().places.as_ref()?.name(place),
            false => Some(place.to_owned()),
        }
    }
}

impl Inner {
    /// Whether a request is one by which clients begin, and whose answer depends on who asks: `/v2/`, and the list of repositories
    /// unless the configuration says who may have it. Somebody who has a login is to use it there.
    pub(super) fn depends_on_who_asks(&self, needs: &[Need]) -> bool {
        let is_list = |need: &Need| need.action == Action::Catalog;
        needs.is_empty() || (self.settings.catalog.is_none() && needs.iter().all(is_list))
    }
}
