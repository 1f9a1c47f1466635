//! Bearer tokens, kept until shortly before they end and then renewed by one call for all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

/// Life of a token whose server does not say (distribution's token specification).
const DEFAULT_LIFE: u64 = 60;
/// Longest life of a token that counts; a longer one is cut.
const MAX_LIFE: u64 = 24 * 3600;
/// A token is renewed after this part of its life, while it is still good for requests under way.
const RENEW_AFTER: f64 = 0.8;
/// Longest token; a header must still fit what servers take.
const MAX_TOKEN: usize = 64 << 10;
/// Most tokens kept at once.
const MAX_TOKENS: usize = 4096;

/// A token and its life.
#[derive(Clone)]
pub(crate) struct Token {
    /// The value of the `Authorization` header.
    pub(crate) header: String,
    renew_at: Instant,
    ends_at: Instant,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("ends_at", &self.ends_at)
            .finish_non_exhaustive()
    }
}

/// How good a token still is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Use it.
    Fresh,
    /// Use it, but have it renewed.
    Aging,
    /// Do not use it.
    Ended,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Token {
    /// Reads an authorization server's answer that was asked for at `asked`.
    pub(crate) fn parse(body: &[u8], asked: Instant) -> Result<Self, String> {
        // The body holds a secret, so the message must not quote it.
        let answer: TokenAnswer =
            serde_json::from_slice(body).map_err(|_| "its answer is not JSON with a token".to_owned())?;
        let text = answer
            .token
            .filter(|text| !text.is_empty())
            .or(answer.access_token)
            .unwrap_or_default();
        if text.is_empty() || text.len() > MAX_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("its answer has no usable token".to_owned());
        }
        let life = answer
            .expires_in
            .filter(|life| *life > 0)
            .unwrap_or(DEFAULT_LIFE)
            .min(MAX_LIFE);
        Ok(Self::lasting(
            format!("Bearer {text}"),
            asked,
            Duration::from_secs(life),
        ))
    }

    /// A header that is good for `life` from `start` on.
    pub(crate) fn lasting(header: String, start: Instant, life: Duration) -> Self {
        Self {
            header,
            renew_at: start + life.mul_f64(RENEW_AFTER),
            ends_at: start + life,
        }
    }

    pub(crate) fn freshness(&self) -> Freshness {
        let now = Instant::now();
        if now >= self.ends_at {
            Freshness::Ended
        } else if now >= self.renew_at {
            Freshness::Aging
        } else {
            Freshness::Fresh
        }
    }
}

/// The requests that a token is good for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey {
    /// Authority of the registry.
    pub(crate) authority: String,
    /// Repository and actions, as distribution's token specification writes them.
    pub(crate) scope: String,
}

/// A place for one token. The task that renews it holds `renewal`; others wait for that or use the old one.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    token: Mutex<Option<Token>>,
    pub(crate) renewal: tokio::sync::Mutex<()>,
}

impl Slot {
    pub(crate) fn get(&self) -> Option<Token> {
        self.token.lock().clone()
    }

    pub(crate) fn put(&self, token: Token) {
        *self.token.lock() = Some(token);
    }

    /// Forgets a token that was refused, unless it has been replaced already.
    pub(crate) fn forget(&self, refused: &str) {
        let mut token = self.token.lock();
        if token.as_ref().is_some_and(|token| token.header == refused) {
            *token = None;
        }
    }
}

/// All tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<TokenKey, Arc<Slot>>>);

impl Tokens {
    pub(crate) fn slot(&self, key: &TokenKey) -> Arc<Slot> {
        let mut slots = self.0.lock();
        if slots.len() >= MAX_TOKENS && !slots.contains_key(key) {
            slots.retain(|_, slot| {
                slot.get()
                    .is_some_and(|token| token.freshness() != Freshness::Ended)
            });
        }
        if slots.len() >= MAX_TOKENS && !slots.contains_key(key) {
            slots.clear();
        }
        slots.entry(key.clone()).or_default().clone()
    }

    /// Forgets all. A renewal that is under way is of use only to the requests that wait for it.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lives() {
        let now = Instant::now();
        let token = Token::parse(br#"{"token": "abc", "expires_in": 300}"#, now).unwrap();
        assert_eq!(token.header, "Bearer abc");
        assert_eq!(token.freshness(), Freshness::Fresh);
        tokio::time::advance(Duration::from_secs(239)).await;
        assert_eq!(token.freshness(), Freshness::Fresh);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(token.freshness(), Freshness::Aging);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.freshness(), Freshness::Ended);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_of_servers() {
        let now = Instant::now();
        let parse = |text: &str| Token::parse(text.as_bytes(), now);
        assert_eq!(
            parse(r#"{"access_token": "x"}"#).unwrap().ends_at,
            now + Duration::from_secs(60)
        );
        assert_eq!(
            parse(r#"{"token":"x","expires_in":0}"#).unwrap().ends_at,
            now + Duration::from_secs(60)
        );
        let huge = parse(r#"{"token":"x","expires_in":18446744073709551615}"#).unwrap();
        assert_eq!(huge.ends_at, now + Duration::from_secs(MAX_LIFE));
        for wrong in [
            "",
            "{}",
            r#"{"token":""}"#,
            r#"{"token":"a\nb"}"#,
            "[]",
            r#"{"token":"x","expires_in":-1}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_refused_token_is_forgotten() {
        let slot = Slot::default();
        let token = |text: &str| Token::lasting(text.to_owned(), Instant::now(), Duration::from_secs(60));
        slot.put(token("new"));
        slot.forget("old");
        assert!(slot.get().is_some());
        slot.forget("new");
        assert!(slot.get().is_none());
    }
}
