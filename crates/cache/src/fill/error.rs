//! Why a fill failed.

use std::ops::Range;

use xebec_format::digest::Digest;

use super::source::FaultKind;

/// Why a range could not be brought in. Readers get an error number; the log tells the reasons apart.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FillError {
    /// The bytes could not be fetched.
    #[error("cannot fetch {}", fetched(what, layer, reason))]
    Fetch {
        /// The layer blob's digest.
        layer: Digest,
        /// Which part of it.
        what: String,
        /// Whether waiting could have helped.
        kind: FaultKind,
        /// The source's own words.
        reason: String,
    },
    /// The bytes are not what the index says.
    #[error(
        "wrong bytes for span {span} of layer {layer} (blob bytes {source_range:?}): {reason}; nothing was cached"
    )]
    Wrong {
        /// The layer blob's digest.
        layer: Digest,
        /// Number of the span in the index.
        span: usize,
        /// Its bytes in the blob.
        source_range: Range<u64>,
        /// The decoder's error; for a digest that differs, both digests.
        reason: String,
    },
    /// The bytes could not be kept.
    #[error("cannot write span {span} of layer {layer} to the cache: {reason}{}", hint(*full))]
    Disk {
        /// The layer blob's digest.
        layer: Digest,
        /// Number of the span in the index.
        span: usize,
        /// The system's words.
        reason: String,
        /// Whether the file system is full.
        full: bool,
    },
    /// The reader has waited as long as it may.
    #[error("layer {layer}: gave up waiting for {spans} spans{}", because(.problem.as_deref()))]
    Late {
        /// The layer blob's digest.
        layer: Digest,
        /// How many spans it needed.
        spans: usize,
        /// Why the latest try failed, if one did.
        problem: Option<String>,
    },
    /// The task that was to fetch it went away.
    #[error("the fetch of layer {layer} was given up")]
    Abandoned {
        /// The layer blob's digest.
        layer: Digest,
    },
}

impl FillError {
    /// Whether there was no room to keep the bytes.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::Disk { full: true, .. })
    }

    /// Whether trying again can end otherwise without anybody changing anything here.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Fetch { kind, .. } => *kind == FaultKind::Passing,
            Self::Abandoned { .. } => true,
            Self::Wrong { .. } | Self::Disk { .. } | Self::Late { .. } => false,
        }
    }
}

/// The message for a failed fetch: the thing asked for, its layer and the reason. A reason that names the layer itself is a
/// registry's, which says all of this.
fn fetched(what: &str, layer: &Digest, reason: &str) -> String {
    match reason.contains(&layer.to_string()) {
        true => reason.to_owned(),
        false => format!("{what} of layer {layer}: {reason}"),
    }
}

fn because(problem: Option<&str>) -> String {
    problem.map_or_else(String::new, |problem| format!("; the latest try: {problem}"))
}

fn hint(full: bool) -> &'static str {
    if full {
        ". Make room on the file system; the next read tries again"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_fetched_is_said_once() {
        let layer = Digest::of(b"layer");
        let said = |reason: String| {
            let what = "bytes 1..9".to_owned();
            let kind = FaultKind::Passing;
            FillError::Fetch {
                layer,
                what,
                kind,
                reason,
            }
            .to_string()
        };
        let registrys = format!("r.example/app: bytes 1..9 of blob {layer}: no connection");
        assert_eq!(said(registrys.clone()), format!("cannot fetch {registrys}"));
        let other = said("8 bytes came instead of 9".to_owned());
        assert_eq!(
            other,
            format!("cannot fetch bytes 1..9 of layer {layer}: 8 bytes came instead of 9")
        );
    }

    #[test]
    fn a_full_disk_is_told_with_what_helps_and_no_other_failure_is() {
        let said = |full| {
            let (layer, reason) = (Digest::of(b"layer"), "it says so".to_owned());
            FillError::Disk {
                layer,
                span: 7,
                reason,
                full,
            }
            .to_string()
        };
        assert!(
            said(true).ends_with(": it says so. Make room on the file system; the next read tries again")
        );
        assert!(said(false).ends_with("to the cache: it says so"));
    }
}
