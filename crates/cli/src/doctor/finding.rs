//! One thing that was checked.

use serde::Serialize;
use xebec_kernel::features::{Check, Outcome};

/// A check of the host, for people and for scripts.
#[derive(Serialize)]
pub(super) struct Finding {
    name: String,
    outcome: Verdict,
    detail: String,
    /// The remedy, unless it is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Good,
    Poor,
    NotTried,
    Missing,
}

impl Finding {
    pub(super) fn good(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            outcome: Verdict::Good,
            detail: detail.into(),
            advice: None,
        }
    }

    /// Xebec works, but not all of it.
    pub(super) fn poor(name: impl Into<String>, detail: String, advice: String) -> Self {
        Self {
            name: name.into(),
            outcome: Verdict::Poor,
            detail,
            advice: Some(advice),
        }
    }

    /// Xebec cannot work, or not safely, before it is mended.
    pub(super) fn broken(name: impl Into<String>, detail: String, advice: Option<String>) -> Self {
        Self {
            name: name.into(),
            outcome: Verdict::Missing,
            detail,
            advice,
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.outcome == Verdict::Missing
    }

    pub(super) fn print(&self) {
        let Self { name, detail, .. } = self;
        match self.outcome {
            Verdict::Good => outln!("ok    {name}: {detail}"),
            Verdict::Poor => outln!("warn  {name}: {detail}"),
            Verdict::NotTried => outln!("?     {name}: not tried: {detail}"),
            Verdict::Missing => outln!("FAIL  {name}: {detail}"),
        }
        // A check that was not tried needs one that failed before it; that one has its own advice.
        if let Some(advice) = self.advice.as_ref().filter(|_| self.outcome != Verdict::NotTried) {
            outln!("      {advice}");
        }
    }
}

impl From<Check> for Finding {
    fn from(check: Check) -> Self {
        let outcome = match check.outcome {
            Outcome::Good => Verdict::Good,
            Outcome::Poor => Verdict::Poor,
            Outcome::NotTried => Verdict::NotTried,
            Outcome::Missing => Verdict::Missing,
        };
        Self {
            name: check.name.to_owned(),
            outcome,
            detail: check.detail,
            advice: (outcome != Verdict::Good).then(|| check.advice.to_owned()),
        }
    }
}
