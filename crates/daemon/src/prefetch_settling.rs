//! A new version of an image has time to get its index and its recording, both of which come after it. Brought in sooner, it would be read
//! whole.

use std::time::Duration;

use tokio::time::Instant;
use xebec_format::digest::Digest;

/// The time of a version.
const TIME: Duration = Duration::from_secs(60);
/// Looks are no closer together than this.
const LEAST: Duration = Duration::from_secs(1);

/// The version that has time, and until when. A version whose digest the registry does not say is one like any other.
#[derive(Debug, Default)]
pub(crate) struct Settling(Option<(Option<Digest>, Instant)>);

impl Settling {
    /// Whether a version has time left. Its time begins when this is first asked of it.
    pub(crate) fn has_time(&mut self, version: Option<Digest>, now: Instant) -> bool {
        match &self.0 {
            Some((known, until)) if *known == version => *until > now,
            _ => {
                self.0 = Some((version, now + TIME));
                true
            }
        }
    }

    /// No version has time any more: this one was brought in, or is the one that was there before.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    /// How long until the time of a version is over, if one has time.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let (_, until) = self.0?;
        Some(until.saturating_duration_since(now).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_time() {
        let [second, third] = [b"2", b"3"].map(|version| Some(Digest::of(version)));
        let (mut settling, begun) = (Settling::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(settling.left(begun), None);
        assert!(settling.has_time(second, begun));
        assert!(settling.has_time(second, after(59)));
        assert_eq!(settling.left(after(59)), Some(Duration::from_secs(1)));
        assert!(!settling.has_time(second, after(60)));
        // The next version comes just before.
        assert!(settling.has_time(third, after(59)));
        assert!(settling.has_time(third, after(118)));
        assert!(!settling.has_time(third, after(119)));
        // Nobody looks without a pause, whatever becomes of it.
        assert_eq!(settling.left(after(500)), Some(LEAST));
        settling.end();
        assert_eq!(settling.left(after(500)), None);
    }
}
