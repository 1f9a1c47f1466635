//! Sends the events of one receiver, in order.
//!
//! Events that fail for a passing reason are sent again, later and later, for a time. A request that the receiver calls wrong is sent
//! three times; then it is halved, and each half is sent once, down to the one event that the receiver does not want. A request that is
//! too large for the receiver is halved at once. Events that are given up are counted and logged.
//!
//! Once the registry ends, waiting events are sent without long pauses, and a receiver that goes on failing is given up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName};
use reqwest::{Client, Url};
use ring::hmac;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::counters::Counters;

/// The name of the header with the signature.
const SIGNATURE: HeaderName = HeaderName::from_static("x-xebec-signature-256");

/// The most events in one request.
const BATCH: usize = 100;

/// The first pause after a failure, which doubles each time up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How often something is sent that the receiver says is wrong (4xx, but for 408, 425 and 429).
const TRIES_OF_REFUSED: u32 = 3;

/// How long after the registry has begun to end a receiver that fails is tried. One that takes its events has longer.
const LAST_TRIES: Duration = Duration::from_secs(10);

/// The HMAC-SHA256 of a body, as the header has it.
pub fn signature(secret: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    format!("sha256={}", hex::encode(tag.as_ref()))
}

/// Since when the registry ends, if it does.
type Ending = watch::Receiver<Option<Instant>>;

/// The sender to one receiver.
pub(crate) struct Delivery {
    pub(crate) url: Url,
    pub(crate) client: Client,
    pub(crate) headers: HeaderMap,
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) give_up_after: Duration,
    pub(crate) instance: String,
    pub(crate) counters: Arc<Counters>,
}

/// How a request turned out.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    /// It may be taken later.
    Later(String),
    /// The receiver says that it is wrong.
    Refused(String, Fault),
}

/// The fault of a request, as its answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It is too large.
    Size,
    /// Maybe one of its events.
    Content,
    /// Not what is in it: the address, or a secret.
    Address,
}

impl Fault {
    fn of(status: u16) -> Self {
        match status {
            413 => Self::Size,
            401 | 403 | 404 | 405 | 410 => Self::Address,
            _ => Self::Content,
        }
    }
}

/// The end of some events.
enum End {
    Taken,
    GivenUp(String),
    /// They may be taken in smaller parts.
    Halve(String),
}

impl Delivery {
    /// Sends events until the registry ends and none is left.
    pub(crate) async fn run(self, mut events: Receiver<Value>, mut ending: Ending) {
        let mut batch = Vec::new();
        loop {
            let more = tokio::select! {
                more = events.recv_many(&mut batch, BATCH) => more,
                _ = ending.wait_for(Option::is_some), if !events.is_closed() => {
                    events.close();
                    continue;
                }
            };
            if more == 0 {
                return;
            }
            for event in &mut batch {
                if let Some(fields) = event.as_object_mut() {
                    fields.insert(
                        "source".to_owned(),
                        json!({"addr": self.instance, "instanceID": self.instance}),
                    );
                }
            }
            self.deliver(&batch, &mut ending).await;
            batch.clear();
        }
    }

    /// Sends these, in parts if it must be.
    async fn deliver(&self, events: &[Value], ending: &mut Ending) {
        let mut left = vec![(events, TRIES_OF_REFUSED)];
        while let Some((events, tries)) = left.pop() {
            let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
            let counter = match self.send_for_a_time(events, tries, ending).await {
                End::Taken => &self.counters.delivered,
                End::Halve(reason) if events.len() > 1 => {
                    tracing::debug!(url = %self.url, reason, events = count, "a webhook's events are sent in halves");
                    let (first, second) = events.split_at(events.len() / 2);
                    left.extend([(second, 1), (first, 1)]);
                    continue;
                }
                End::Halve(reason) | End::GivenUp(reason) => {
                    tracing::error!(url = %self.url, reason, events = count, "a webhook's events are given up");
                    &self.counters.dropped
                }
            };
            counter.fetch_add(count, Ordering::Relaxed);
            self.counters.waiting.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// Sends these in one request, again and again if need be. If the receiver says that they are wrong, so many times.
    async fn send_for_a_time(&self, events: &[Value], tries: u32, ending: &mut Ending) -> End {
        let body = json!({"events": events}).to_string().into_bytes();
        let begun = Instant::now();
        let (mut pause, mut refused) = (FIRST_PAUSE, 0);
        loop {
            let (reason, fault) = match self.send(&body).await {
                Outcome::Taken => return End::Taken,
                Outcome::Later(reason) => (reason, None),
                Outcome::Refused(reason, fault) => {
                    refused += 1;
                    (reason, Some(fault))
                }
            };
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
            match fault {
                Some(Fault::Size) if events.len() > 1 => return End::Halve(reason),
                Some(Fault::Address) if refused >= tries => return End::GivenUp(reason),
                Some(_) if refused >= tries => return End::Halve(reason),
                _ if begun.elapsed() + pause > self.give_up_after => return End::GivenUp(reason),
                _ => {}
            }
            if ending.borrow().is_some_and(|since| since.elapsed() > LAST_TRIES) {
                return End::GivenUp(reason);
            }
            tracing::warn!(url = %self.url, reason, pause = ?pause, "a webhook's receiver takes no events; they are sent again");
            self.pause(pause, ending).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Several nodes shall not come back at the same moment. While the registry ends, there is no time for long pauses.
    async fn pause(&self, pause: Duration, ending: &mut Ending) {
        let long = tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0));
        let short = async {
            let _ = ending.wait_for(Option::is_some).await;
            tokio::time::sleep(FIRST_PAUSE).await;
        };
        tokio::select! {
            () = long => {}
            () = short => {}
        }
    }

    async fn send(&self, body: &[u8]) -> Outcome {
        let mut request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .body(body.to_vec());
        if let Some(secret) = &self.secret {
            request = request.header(SIGNATURE, signature(secret, body));
        }
        match request.send().await {
            Ok(response) => match response.status().as_u16() {
                200..=299 => Outcome::Taken,
                status @ (408 | 425 | 429 | 500..) => Outcome::Later(format!("it answers {status}")),
                status => Outcome::Refused(format!("it answers {status}"), Fault::of(status)),
            },
            Err(error) => Outcome::Later(error.without_url().to_string()),
        }
    }
}
