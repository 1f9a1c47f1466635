//! The findings of `doctor`, one for each thing that the registry needs.

/// The finding about one thing.
pub(super) struct Found {
    pub(super) what: String,
    pub(super) state: State,
    pub(super) said: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It works.
    Well,
    /// It works, and somebody should know.
    Note,
    /// It does not.
    Broken,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Note => "note",
            Self::Broken => "broken",
        }
    }
}

impl Found {
    pub(super) fn well(what: impl Into<String>, said: impl Into<String>) -> Self {
        Self::new(what, State::Well, said)
    }

    pub(super) fn note(what: impl Into<String>, said: impl Into<String>) -> Self {
        Self::new(what, State::Note, said)
    }

    pub(super) fn broken(what: impl Into<String>, said: impl Into<String>) -> Self {
        Self::new(what, State::Broken, said)
    }

    fn new(what: impl Into<String>, state: State, said: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            state,
            said: said.into(),
        }
    }
}
