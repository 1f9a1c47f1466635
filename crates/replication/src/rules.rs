//! The rules that count now. They may change while others work by them.

use std::sync::Arc;

use parking_lot::RwLock;
use xebec_policy::copies::CopyRules;

/// A handle to the rules. All clones are one.
#[derive(Clone)]
pub struct Rules(Arc<RwLock<Arc<CopyRules>>>);

impl Rules {
    /// These rules, at first.
    pub fn new(rules: CopyRules) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    /// The rules that count now.
    pub fn get(&self) -> Arc<CopyRules> {
        self.0.read().clone()
    }

    /// Has these count from now on.
    pub fn set(&self, rules: CopyRules) {
        *self.0.write() = Arc::new(rules);
    }
}
