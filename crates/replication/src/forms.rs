//! In which form a blob is to be taken apart, for those who do that.

use xebec_kernel::clock::milliseconds_since_1970 as now;
use xebec_placement::Form;
use xebec_store::{Digest, Store, StoreError};

use crate::rules::Rules;
use crate::steps::{BY_RULE, wanted};

/// Asks the rules how a blob is to be taken apart.
#[derive(Clone)]
pub struct FormsByRules {
    rules: Rules,
}

impl FormsByRules {
    /// By these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules }
    }

    /// Whether there are rules.
    pub fn count(&self) -> bool {
        !self.rules.get().is_empty()
    }

    /// The form of a blob's recipe as it is wanted now; why it stays intact, if the rules want none. `None` if there are no rules.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn of(&self, store: &Store, blob: &Digest) -> Result<Option<Result<Form, String>>, StoreError> {
        let rules = self.rules.get();
        if rules.is_empty() {
            return Ok(None);
        }
        let standing = store.standing(blob).await?;
        let form = standing.and_then(|standing| wanted(&standing, &rules, now()).form());
        Ok(Some(form.ok_or_else(|| BY_RULE.to_owned())))
    }
}
