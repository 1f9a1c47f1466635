//! Remembered answers for those who watch a store: an answer that costs something is found out now and then, however often it is asked for.

use std::future::Future;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A value that is read anew in the background when it is asked for and old.
pub(crate) struct Remembered<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Option<T>,
    /// When it was read last, or somebody began to.
    begun: Option<Instant>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                value: None,
                begun: None,
            }),
        }
    }
}

impl<T: Clone> Remembered<T> {
    /// The value that was read last, and whether the caller is the one that reads it again, since the last reading began longer ago
    /// than `age`.
    pub(crate) fn get(&self, age: Duration) -> (Option<T>, bool) {
        let mut state = self.state.lock();
        let is_old = state.begun.is_none_or(|begun| begun.elapsed() >= age);
        if is_old {
            state.begun = Some(Instant::now());
        }
        (state.value.clone(), is_old)
    }

    /// Takes over what was read.
    pub(crate) fn set(&self, value: T) {
        self.state.lock().value = Some(value);
    }
}

/// A value that is read again when it is old and somebody wants it. All others who want it meanwhile wait for that one.
pub(crate) struct Lately<T>(tokio::sync::Mutex<Option<(Instant, T)>>);

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(tokio::sync::Mutex::new(None))
    }
}

impl<T: Clone> Lately<T> {
    /// The value, which is no older than `age`. A failure is the caller's who has read; the next one tries again.
    pub(crate) async fn get<E>(
        &self,
        age: Duration,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut last = self.0.lock().await;
        if let Some((at, value)) = &*last
            && at.elapsed() < age
        {
            return Ok(value.clone());
        }
        let value = read.await?;
        *last = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}
