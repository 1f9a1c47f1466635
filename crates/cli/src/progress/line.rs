//! The text of the line: the action, how far it is, and the obstacle.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use xebec_protocol::wire::{Reply, Unit, Waiting};

use crate::text;

/// A command that ends within this time shows no line.
const SOON: Duration = Duration::from_secs(1);
/// The rate is that of so much time.
const RATE_TIME: Duration = Duration::from_secs(5);
/// Shortest time from which a rate is told.
const LEAST_RATE_TIME: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Line {
    /// The command.
    what: String,
    begun: Instant,
    activity: Option<Activity>,
    outage: Option<Outage>,
}

/// Something that goes on.
struct Activity {
    what: String,
    done: u64,
    total: Option<u64>,
    unit: Unit,
    begun: Instant,
    /// Earlier moments, and how far it was then.
    samples: VecDeque<(Instant, u64)>,
}

/// A registry that is waited for.
struct Outage {
    registry: String,
    waiting: Waiting,
    told: Instant,
}

impl Line {
    pub(super) fn new(what: String, now: Instant) -> Self {
        Self {
            what,
            begun: now,
            activity: None,
            outage: None,
        }
    }

    /// Notes the news of a reply.
    pub(super) fn note(&mut self, reply: &Reply, now: Instant) {
        let Reply::Progress {
            what,
            done,
            total,
            unit,
            waiting,
        } = reply
        else {
            return;
        };
        if let Some(waiting) = waiting {
            self.outage = Some(Outage {
                registry: what.clone(),
                waiting: waiting.clone(),
                told: now,
            });
            return;
        }
        if *total == Some(0) {
            self.outage.take_if(|outage| outage.registry == *what);
            return;
        }
        if total.is_some_and(|total| *done >= total) {
            self.activity.take_if(|activity| activity.what == *what);
            return;
        }
        let same = self.activity.take().filter(|activity| activity.what == *what);
        let mut activity = same.unwrap_or_else(|| Activity {
            what: what.clone(),
            done: 0,
            total: None,
            unit: *unit,
            begun: now,
            samples: VecDeque::new(),
        });
        (activity.done, activity.total) = (*done, *total);
        activity.sample(now);
        self.activity = Some(activity);
    }

    /// The line, if there is anything to say yet.
    pub(super) fn text(&self, now: Instant, columns: usize) -> Option<String> {
        if now.duration_since(self.begun) < SOON {
            return None;
        }
        let text = match (&self.outage, &self.activity) {
            (Some(outage), _) => outage.text(now),
            (None, Some(activity)) => activity.text(now),
            (None, None) => format!("{} … {} s", self.what, now.duration_since(self.begun).as_secs()),
        };
        // Control characters that a registry sends must not act on the terminal.
        let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let clean: Vec<char> = clean.collect();
        if clean.len() <= columns {
            return Some(clean.into_iter().collect());
        }
        let kept = clean.into_iter().take(columns.saturating_sub(1));
        Some(kept.chain(['…']).collect())
    }
}

impl Outage {
    fn text(&self, now: Instant) -> String {
        let passed = now.duration_since(self.told);
        let Waiting {
            why,
            tried,
            tries,
            next_ms,
            left_ms,
        } = &self.waiting;
        let tries = match tries {
            Some(tries) => format!("{tried} of {tries} tries failed"),
            None => format!("{tried} tries failed"),
        };
        // The remedy and the reason come first, since the end of the line may be cut off.
        let left = |ms: &u64| Duration::from_millis(*ms).saturating_sub(passed);
        let next = next_ms.as_ref().map(left).filter(|left| !left.is_zero());
        let next = next.map_or_else(String::new, |left| {
            format!(", the next in {:.0} s", left.as_secs_f64().ceil())
        });
        let end = left_ms.as_ref().map(left);
        let end = end.map_or_else(String::new, |left| format!(", up to {} yet", time(left)));
        format!(
            "waiting for {} (Ctrl-C stops): {why}; {tries}{next}{end}",
            self.registry
        )
    }
}

impl Activity {
    fn sample(&mut self, now: Instant) {
        // One that began anew has no rate from before.
        if self.samples.back().is_some_and(|(_, done)| *done > self.done) {
            self.samples.clear();
        }
        self.samples.push_back((now, self.done));
        while self.samples.len() > 2
            && self
                .samples
                .front()
                .is_some_and(|(then, _)| now.duration_since(*then) > RATE_TIME)
        {
            self.samples.pop_front();
        }
    }

    /// In bytes or things a second.
    fn rate(&self, now: Instant) -> Option<f64> {
        let (first, before) = self.samples.front()?;
        let time = now.duration_since(*first);
        (time >= LEAST_RATE_TIME).then(|| self.done.saturating_sub(*before) as f64 / time.as_secs_f64())
    }

    fn text(&self, now: Instant) -> String {
        let amount = |amount: u64| match self.unit {
            Unit::Bytes => text::size(amount),
            Unit::Items => amount.to_string(),
        };
        let mut text = format!("{}: {}", self.what, amount(self.done));
        let Some(total) = self.total else { return text };
        text.push_str(&format!(" of {}", amount(total)));
        if self.unit == Unit::Items {
            return text;
        }
        let Some(rate) = self.rate(now) else { return text };
        text.push_str(&format!(", {}/s", text::size(rate as u64)));
        let left = total.saturating_sub(self.done) as f64 / rate;
        if left.is_finite() && left < 1e7 {
            text.push_str(&format!(", {} left", time(Duration::from_secs_f64(left))));
        } else {
            let since = self.samples.back().map_or(self.begun, |(at, _)| *at);
            text.push_str(&format!(", nothing for {}", time(now.duration_since(since))));
        }
        text
    }
}

/// A time for people, to the second.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    const WIDE: usize = 200;

    fn at(begun: Instant, milliseconds: u64) -> Instant {
        begun + Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_is_quick_is_not_shown_and_what_says_nothing_counts_on() {
        let begun = Instant::now();
        let mut line = Line::new("pull app".to_owned(), begun);
        assert_eq!(line.text(at(begun, 900), WIDE), None);
        assert_eq!(line.text(at(begun, 3100), WIDE).unwrap(), "pull app … 3 s");
        line.note(&Reply::bytes("layer", 10, 10), at(begun, 3200));
        assert_eq!(line.text(at(begun, 3300), WIDE).unwrap(), "pull app … 3 s");
    }

    #[test]
    fn bytes_with_their_rate_and_the_time_that_is_left() {
        let begun = Instant::now();
        let mut line = Line::new(String::new(), begun);
        for second in 0..10 {
            let done = 1_000_000 * second;
            line.note(
                &Reply::bytes("layer 1/2", done, 20_000_000),
                at(begun, second * 1000),
            );
        }
        assert_eq!(
            line.text(at(begun, 9000), WIDE).unwrap(),
            "layer 1/2: 9.0 MB of 20.0 MB, 1.0 MB/s, 11 s left"
        );
        // Another one begins with no rate.
        line.note(&Reply::bytes("layer 2/2", 0, 7000), at(begun, 9000));
        assert_eq!(
            line.text(at(begun, 9000), WIDE).unwrap(),
            "layer 2/2: 0 B of 7.0 kB"
        );
        let stuck = line.text(at(begun, 19_000), WIDE).unwrap();
        assert_eq!(stuck, "layer 2/2: 0 B of 7.0 kB, 0 B/s, nothing for 10 s");
        line.note(&Reply::items("record", 1, 3), at(begun, 19_000));
        assert_eq!(line.text(at(begun, 19_000), WIDE).unwrap(), "record: 1 of 3");
    }

    #[test]
    fn a_usual_terminal_shows_the_cause() {
        let begun = Instant::now();
        let mut line = Line::new("pull app".to_owned(), begun);
        let waiting = Waiting {
            why: "there is no host named nosuchhost.example".to_owned(),
            tried: 4,
            tries: Some(8),
            next_ms: Some(4000),
            left_ms: Some(100_000),
        };
        line.note(
            &Reply::waits("nosuchhost.example:5000".to_owned(), waiting),
            at(begun, 1000),
        );
        let shown = line.text(at(begun, 2000), 80).unwrap();
        assert!(shown.contains("there is no host"), "{shown}");
    }

    #[test]
    fn a_registry_that_is_waited_for() {
        let begun = Instant::now();
        let mut line = Line::new("pull app".to_owned(), begun);
        let waiting = Waiting {
            why: "no connection:\u{1b}[31m refused".to_owned(),
            tried: 3,
            tries: Some(8),
            next_ms: Some(4000),
            left_ms: Some(100_000),
        };
        line.note(&Reply::waits("r.example".to_owned(), waiting), at(begun, 1000));
        assert_eq!(
            line.text(at(begun, 2000), WIDE).unwrap(),
            "waiting for r.example (Ctrl-C stops): no connection: [31m refused; 3 of 8 tries failed, the next in 3 s, up to 2 min yet"
        );
        let narrow = line.text(at(begun, 2000), 40).unwrap();
        assert_eq!(narrow, "waiting for r.example (Ctrl-C stops): n…");
        line.note(&Reply::waits_no_more("other.example".to_owned()), at(begun, 2000));
        assert!(line.text(at(begun, 2000), WIDE).unwrap().contains("r.example"));
        line.note(&Reply::waits_no_more("r.example".to_owned()), at(begun, 2000));
        assert_eq!(line.text(at(begun, 2000), WIDE).unwrap(), "pull app … 2 s");
    }
}
