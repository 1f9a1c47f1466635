//! Whether anything may be written, or served at all.
//!
//! The configuration says it at the start, and the file `mode` in the root directory while the registry serves. The file's first word
//! is `read-only`, `maintenance` or `normal`; what follows on the line is told to clients. Without the file, the configuration
//! counts.

use serde::Deserialize;

/// The longest reason that is told to clients, in characters.
const MAX_REASON: usize = 200;

/// When clients shall come again, in seconds.
const RETRY_AFTER: u64 = 30;

/// How the registry serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serving {
    /// Everything.
    #[default]
    Normal,
    /// Reads only.
    ReadOnly,
    /// Nothing but health and metrics.
    Maintenance,
}

/// How the registry serves, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mode {
    /// How.
    pub serving: Serving,
    /// Why, for clients.
    pub reason: String,
}

/// A line that is no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no mode; the first word is read-only, maintenance or normal, and what follows is told to clients"
)]
pub struct ModeError(String);

/// The answer to a request that the mode does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeRefusal {
    /// The reason of the refusal, for the client.
    pub detail: String,
    /// When to come again, in seconds: 503. Without it the answer is 405, as the CNCF registry answers when it is read-only.
    pub retry_after: Option<u64>,
}

impl Mode {
    /// Reads the first line of the file.
    ///
    /// # Errors
    /// [`ModeError`].
    pub fn parse(text: &str) -> Result<Self, ModeError> {
        let line = text.lines().next().unwrap_or_default().trim();
        let (word, reason) = line.split_once([' ', '\t', ':']).unwrap_or((line, ""));
        let serving = match word {
            "normal" => Serving::Normal,
            "read-only" => Serving::ReadOnly,
            "maintenance" => Serving::Maintenance,
            _ => return Err(ModeError(word.chars().take(40).collect())),
        };
        let reason = reason
            .trim_start_matches([':', ' ', '\t'])
            .chars()
            .filter(|c| !c.is_control());
        Ok(Self {
            serving,
            reason: reason.take(MAX_REASON).collect(),
        })
    }

    /// The answer to a request that is not allowed now. `writes` is whether it would change anything.
    pub fn refusal(&self, writes: bool) -> Option<ModeRefusal> {
        let because = match self.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        match self.serving {
            Serving::ReadOnly if writes => Some(ModeRefusal {
                detail: format!("the registry is read-only now{because}"),
                retry_after: None,
            }),
            Serving::Maintenance => Some(ModeRefusal {
                detail: format!("the registry is in maintenance{because}; try again later"),
                retry_after: Some(RETRY_AFTER),
            }),
            Serving::Normal | Serving::ReadOnly => None,
        }
    }
}
