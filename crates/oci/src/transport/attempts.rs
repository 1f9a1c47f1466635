//! How often, how fast and how long one call tries. [`Gate`] holds the limits that it shares with other calls to its registry.
//!
//! A call has a number of tries and a deadline. Between tries it waits a random time whose bound doubles, or
//! as long as the registry asked for.
//!
//! A call with [`Patience::Until`] does not count its tries. While a registry is away, the bucket decides how often
//! it is asked by all such calls together, and the first call that succeeds wakes the others: nobody sits out a long
//! pause after the registry is back. The places bound the burst of requests that the registry then meets.

use std::time::Duration;

use tokio::time::Instant;

use super::gate::{Gate, MAX_RETRY_AFTER};
use crate::client::call_options::{Patience, Wait};
use crate::client::outage::{self, Outage};
use crate::client::stats::Counters;
use crate::config::Budget;
use crate::error::{ClientError, Fault, Target};

/// Longest pause between tries of a patient call: readers go on about a second after the registry is back.
const STEADY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after refused credentials: a login is worth waiting for, but services lock out a client that knocks too often.
const REFUSED_PAUSE: Duration = Duration::from_secs(15);

/// The tries of one call.
#[derive(Debug)]
pub(crate) struct Attempts {
    budget: Budget,
    counters: Counters,
    tried: u32,
    /// Tries since the call last made progress.
    fruitless: u32,
    patience: Patience,
    /// Time for the call, counted from its start or its last progress.
    time: Duration,
    begun: Instant,
    deadline: Instant,
    /// Whether the listener has been told that the call waits for the registry.
    told: bool,
}

impl Attempts {
    pub(crate) fn new(budget: &Budget, counters: &Counters, patience: Patience) -> Self {
        let time = patience.time(budget.total_deadline);
        let begun = Instant::now();
        let deadline = begun + time;
        Self {
            budget: budget.clone(),
            counters: counters.clone(),
            tried: 0,
            fruitless: 0,
            patience,
            time,
            begun,
            deadline,
            told: false,
        }
    }

    /// Whether the listener was told that the call waits, since this was asked last.
    pub(crate) fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.told)
    }

    /// How long the call may take.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// When the call must be over.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Notes that bytes arrived: tries and time count anew.
    pub(crate) fn progressed(&mut self) {
        self.fruitless = 0;
        // A stream that keeps coming is not cut off when the reader that it began for would have given up.
        let renewed = Instant::now() + self.time.min(self.budget.total_deadline);
        self.deadline = self.deadline.max(renewed);
    }

    /// After a try that failed: waits until the next one is due.
    ///
    /// # Errors
    /// The call's error, if the fault will not pass, or tries or time are used up.
    pub(crate) async fn after(
        &mut self,
        fault: Fault,
        gate: &Gate,
        target: &Target,
    ) -> Result<(), ClientError> {
        self.tried += 1;
        self.fruitless += 1;
        let tried = self.tried;
        let give_up = |fault| Err(ClientError::from_fault(target.clone(), tried, fault));
        let is_patient = self.patience.is_long();
        let can_heal = fault.is_retryable() || (is_patient && fault.may_be_mended());
        // A server that answers nonsense is not away: it has as many tries as the budget gives, with all their bytes.
        let tries = match fault.is_nonsense() {
            true => self.budget.attempts,
            false => self.patience.attempts(self.budget.attempts),
        };
        if !can_heal || self.fruitless >= tries {
            return give_up(fault);
        }
        let asked = self.asked_pause(&fault);
        let mut pause = self.pause_after(&fault).max(gate.draw_retry());
        pause = pause.max(asked.unwrap_or_default());
        if let Some(time) = self.patience.bears(&fault)
            && self.begun.elapsed() + pause >= time
        {
            return give_up(fault);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if pause >= left && !(is_patient && fault.is_absence()) {
            return give_up(fault);
        }
        // Only what this call waits for itself: others would rather hear the refusal than wait in vain.
        if let (Some(asked), Fault::Status { code, .. }) = (asked, &fault) {
            gate.close_for(*code, asked);
        }
        tracing::debug!(%target, %fault, ?pause, tried = self.tried, "will try again");
        self.counters.retry(&fault);
        self.counters.waits(Wait::Pause);
        let bears = self.patience.bears(&fault).unwrap_or(Duration::MAX);
        self.told = true;
        outage::tell(|| Outage::Waits {
            registry: target.registry.clone(),
            why: fault.to_string(),
            tried,
            tries: (tries < u32::MAX).then_some(tried + tries.saturating_sub(self.fruitless)),
            pause,
            left: left.min(bears.saturating_sub(self.begun.elapsed())),
        });
        if fault.is_absence() {
            gate.sleep(pause.min(left)).await;
        } else {
            tokio::time::sleep(pause.min(left)).await;
        }
        if Instant::now() >= self.deadline {
            return give_up(fault);
        }
        Ok(())
    }

    /// How long the server asks to wait.
    fn asked_pause(&self, fault: &Fault) -> Option<Duration> {
        let asked = fault.retry_after()?;
        Some(match self.patience.is_long() {
            true => asked.min(MAX_RETRY_AFTER),
            false => asked,
        })
    }

    /// How long to wait after a fault, by this call's own rules.
    fn pause_after(&self, fault: &Fault) -> Duration {
        match self.patience.is_long() {
            true if fault.is_refusal() => REFUSED_PAUSE,
            true => self.patient_pause(),
            false => jittered(&self.budget, self.fruitless, fastrand::f64()),
        }
    }

    /// Quick tries first, as many as the budget has; then a steady rhythm.
    fn patient_pause(&self) -> Duration {
        if self.fruitless < self.budget.attempts {
            jittered(&self.budget, self.fruitless, fastrand::f64()).min(STEADY_PAUSE)
        } else {
            STEADY_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0)
        }
    }
}

/// Full jitter: a `share` (0 to 1) of a bound that doubles with each fruitless try.
fn jittered(budget: &Budget, fruitless: u32, share: f64) -> Duration {
    let doubled = budget
        .base_delay
        .saturating_mul(1_u32 << fruitless.saturating_sub(1).min(30));
    doubled.min(budget.max_delay).mul_f64(share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Object;

    fn target() -> Target {
        Target {
            registry: "r.example".to_owned(),
            repository: None,
            object: Object::Api,
        }
    }

    fn unavailable(retry_after: Option<u64>) -> Fault {
        let retry_after = retry_after.map(Duration::from_secs);
        Fault::Status {
            code: 503,
            message: String::new(),
            retry_after,
        }
    }

    #[test]
    fn the_bound_doubles_up_to_the_limit() {
        let budget = Budget::default();
        let bounds: Vec<u128> = (1..=9).map(|n| jittered(&budget, n, 1.0).as_millis()).collect();
        assert_eq!(bounds, [200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000]);
        assert_eq!(jittered(&budget, 5, 0.0), Duration::ZERO);
        assert_eq!(jittered(&budget, u32::MAX, 1.0), Duration::from_secs(15));
    }

    #[tokio::test(start_paused = true)]
    async fn tries_are_bounded_and_progress_renews_them() {
        let budget = Budget {
            attempts: 3,
            ..Budget::default()
        };
        let gate = Gate::new(&budget);
        let counters = Counters::default();
        let mut attempts = Attempts::new(&budget, &counters, Patience::Budget);
        for _ in 0..2 {
            attempts.after(unavailable(None), &gate, &target()).await.unwrap();
        }
        attempts.progressed();
        for _ in 0..2 {
            attempts.after(unavailable(None), &gate, &target()).await.unwrap();
        }
        let error = attempts
            .after(unavailable(None), &gate, &target())
            .await
            .unwrap_err();
        assert!(
            matches!(error, ClientError::Failed { attempts: 5, .. }),
            "{error}"
        );
        let lasting = Fault::Status {
            code: 404,
            message: String::new(),
            retry_after: None,
        };
        let error = Attempts::new(&budget, &Counters::default(), Patience::Budget)
            .after(lasting, &gate, &target())
            .await
            .unwrap_err();
        assert!(matches!(error, ClientError::NotFound { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_holds_back_every_call() {
        let budget = Budget::default();
        let gate = Gate::new(&budget);
        let start = Instant::now();
        let counters = Counters::default();
        let mut attempts = Attempts::new(&budget, &counters, Patience::Budget);
        let target = target();
        let (told, other) = tokio::join!(attempts.after(unavailable(Some(7)), &gate, &target), async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            gate.enter(false).await;
            start.elapsed()
        });
        told.unwrap();
        assert!(start.elapsed() >= Duration::from_secs(7));
        assert!(other >= Duration::from_secs(7), "{other:?}");
        // Beyond the deadline there is no use in waiting.
        let begun = Instant::now();
        let error = attempts
            .after(unavailable(Some(3600)), &gate, &target)
            .await
            .unwrap_err();
        assert!(
            matches!(error, ClientError::Failed { attempts: 2, .. }),
            "{error}"
        );
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn no_retry_after_closes_a_registry_for_long_or_panics() {
        let budget = Budget::default();
        for seconds in [86_400, u64::MAX] {
            let gate = Gate::new(&budget);
            let start = Instant::now();
            let until = Patience::Until(start + Duration::from_secs(600));
            let mut attempts = Attempts::new(&budget, &Counters::default(), until);
            attempts
                .after(unavailable(Some(seconds)), &gate, &target())
                .await
                .unwrap();
            gate.enter(false).await;
            assert!(
                start.elapsed() <= MAX_RETRY_AFTER,
                "{seconds}: {:?}",
                start.elapsed()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retries_of_all_calls_share_a_budget() {
        let budget = Budget {
            retry_burst: 2,
            retries_per_second: 1.0,
            base_delay: Duration::from_millis(1),
            ..Budget::default()
        };
        let gate = Gate::new(&budget);
        let start = Instant::now();
        let calls = (0..12).map(|_| async {
            Attempts::new(&budget, &Counters::default(), Patience::Budget)
                .after(unavailable(None), &gate, &target())
                .await
                .unwrap();
        });
        futures_util::future::join_all(calls).await;
        let took = start.elapsed().as_secs_f64();
        assert!(
            (9.9..11.0).contains(&took),
            "12 retries, 2 at once and then 1 a second, took {took} s"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_patient_wait_for_their_deadline_and_are_woken_by_a_success() {
        let budget = Budget {
            attempts: 2,
            retry_burst: 1,
            retries_per_second: 0.1,
            ..Budget::default()
        };
        let gate = Gate::new(&budget);
        let counters = Counters::default();
        let start = Instant::now();
        let until = Patience::Until(start + Duration::from_secs(600));
        let wait = |fault: Fault| {
            let mut attempts = Attempts::new(&budget, &counters, until);
            let gate = &gate;
            async move {
                loop {
                    attempts.after(fault.clone(), gate, &target()).await?;
                }
            }
        };
        let ended: Result<(), ClientError> = wait(unavailable(None)).await;
        let ended = ended.unwrap_err();
        assert!(
            matches!(ended, ClientError::Failed { attempts: 50.., .. }),
            "{ended}"
        );
        assert_eq!(start.elapsed().as_secs(), 600);

        // Nobody waits for a turn of the bucket, which is deep in debt, once somebody was served.
        let start = Instant::now();
        let until = Patience::Until(start + Duration::from_secs(600));
        let one = async {
            let mut attempts = Attempts::new(&budget, &counters, until);
            attempts.after(unavailable(None), &gate, &target()).await.unwrap();
            attempts.after(unavailable(None), &gate, &target()).await.unwrap();
            start.elapsed()
        };
        let success = async {
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                gate.succeeded();
            }
        };
        let (woken, ()) = tokio::join!(one, success);
        assert!(woken <= Duration::from_millis(300), "{woken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_patient_wait_for_a_login_and_nobody_for_what_is_not_there() {
        let budget = Budget::default();
        let gate = Gate::new(&budget);
        let refused = Fault::Credentials("no".to_owned());
        let gone = Fault::Status {
            code: 404,
            message: String::new(),
            retry_after: None,
        };
        let until = Patience::Until(Instant::now() + Duration::from_secs(60));
        let try_once = async |fault: &Fault, patience| {
            Attempts::new(&budget, &Counters::default(), patience)
                .after(fault.clone(), &gate, &target())
                .await
        };
        assert!(try_once(&refused, until).await.is_ok());
        assert!(try_once(&refused, Patience::Budget).await.is_err());
        assert!(try_once(&gone, until).await.is_err());
        let hasty = Patience::Hasty(Duration::from_secs(3));
        assert!(try_once(&unavailable(Some(5)), hasty).await.is_err());
        let begin = Instant::now();
        assert!(try_once(&unavailable(None), hasty).await.is_ok());
        assert!(begin.elapsed() < Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_contact_does_not_wait_long_for_an_absent_server() {
        let budget = Budget {
            attempts: 1000,
            ..Budget::default()
        };
        let gate = Gate::new(&budget);
        let time_of = async |fault: Fault, patience: Patience| {
            let start = Instant::now();
            let mut attempts = Attempts::new(&budget, &Counters::default(), patience);
            while attempts.after(fault.clone(), &gate, &target()).await.is_ok() {}
            start.elapsed().as_secs()
        };
        let nobody = || Fault::NobodyThere("refused".to_owned());
        let silence = || Fault::Connect("no answer".to_owned());
        assert!(time_of(nobody(), Patience::FirstContact).await <= 3);
        assert!((4..=30).contains(&time_of(silence(), Patience::FirstContact).await));
        // It answers, or served this host before.
        assert!(time_of(unavailable(None), Patience::FirstContact).await > 60);
        assert!(time_of(nobody(), Patience::Budget).await > 60);
        let unknown = || Fault::UnknownHost("r.example".to_owned());
        assert_eq!(time_of(unknown(), Patience::Budget).await, 0);
        let until = Patience::Until(Instant::now() + Duration::from_secs(20));
        assert_eq!(time_of(unknown(), until).await, 20);
    }
}
