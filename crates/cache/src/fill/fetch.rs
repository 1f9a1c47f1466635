//! One fetch of a group of spans: its bytes come from the source, and each span is decoded, verified and written.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tracing::{debug, warn};
use xebec_format::layer::Span;
use xebec_index::decode::{DecodeError, decode_span};

use super::run::Run;
use super::{Ask, Blob, FaultKind, Fetched, FillError, FillStats, Filler, Patience, SourceError};
use crate::progress::{Phase, Progress};
use crate::stage::{Stage, reached};

/// How often wrong bytes are fetched again. Damage on the way is gone at the second try, a damaged mirror is passed
/// over at the second; a source that still sends wrong bytes at the fourth has no others.
const REFETCHES: usize = 3;
/// Pause before the second refetch; the first goes out at once, the third waits twice as long.
const REFETCH_PAUSE: Duration = Duration::from_millis(300);

impl Filler {
    /// Fetches a group, and once more those of its spans that were wrong.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        group: &[usize],
        patience: Patience,
        progress: &Arc<Progress>,
    ) -> Result<(), FillError> {
        let mut group = group.to_vec();
        let mut avoid: Vec<String> = Vec::new();
        for refetch in 0.. {
            let mut suspects = Vec::new();
            let result = self
                .fetch_once(&group, patience, &avoid, progress, &mut suspects)
                .await;
            let is_wrong = match &result {
                Err(FillError::Wrong { .. }) => true,
                Err(FillError::Fetch { kind, .. }) => *kind == FaultKind::Wrong,
                _ => false,
            };
            let Err(error) = result else { break };
            if !is_wrong || refetch >= REFETCHES {
                return Err(error);
            }
            warn!(layer = %self.layer.key().layer, span = group.first(), "fetched again: {error}");
            FillStats::add(&self.stats.refetches, 1);
            progress.retry(error.to_string());
            // The blob's own source first: windows are rarely damaged, most are verified as a whole.
            suspects.retain(|source| !avoid.contains(source));
            avoid.extend(suspects.into_iter().next());
            progress.enter(Phase::Pause);
            tokio::time::sleep(REFETCH_PAUSE * u32::try_from(refetch).unwrap_or(0)).await;
            // Waiting readers may want the pages, or want them compared.
            group.retain(|&span| !self.layer.is_written(span));
        }
        Ok(())
    }

    async fn fetch_once(
        self: &Arc<Self>,
        group: &[usize],
        patience: Patience,
        avoid: &[String],
        progress: &Arc<Progress>,
        suspects: &mut Vec<String>,
    ) -> Result<(), FillError> {
        let Some(run) = Run::of(self.layer.table(), group) else {
            return Ok(());
        };
        // Held until all of it is decoded.
        let _fetched = self.memory.fetch(run.bytes()).await;
        // After that, so that no more is promised than may be fetched.
        let promise = self.reserve(group, progress).await?;
        let ask = |blob, range| Ask {
            blob,
            range,
            patience,
            avoid: avoid.to_vec(),
            progress: progress.clone(),
        };
        let fetched = self.read(ask(Blob::Layer, run.source.clone()));
        let fetched_history = async {
            match run.history.clone() {
                Some(range) => self.read(ask(Blob::Windows, range)).await,
                None => Ok(Fetched {
                    bytes: Bytes::new(),
                    sources: Vec::new(),
                }),
            }
        };
        let (fetched, fetched_history) = tokio::try_join!(fetched, fetched_history)?;
        reached(Stage::Fetched);
        let sources = fetched.sources.into_iter().chain(fetched_history.sources);
        suspects.extend(sources.map(|(source, _)| source));
        FillStats::add(&self.stats.requests, 1);
        debug!(
            layer = %self.layer.key().layer,
            spans = run.spans.len(),
            bytes = fetched.bytes.len(),
            "fetched"
        );
        progress.enter(Phase::Verify);
        self.decode(run, &fetched.bytes, &fetched_history.bytes, progress)
            .await?;
        promise.kept();
        Ok(())
    }

    /// Decodes, verifies and writes the spans of a run, side by side.
    async fn decode(
        self: &Arc<Self>,
        run: Run,
        bytes: &Bytes,
        window_bytes: &Bytes,
        progress: &Arc<Progress>,
    ) -> Result<(), FillError> {
        let Run {
            spans,
            source,
            history,
        } = run;
        let decodes = spans.into_iter().map(|(index, span)| {
            let bytes = slice(bytes, source.start, &span.source);
            let window = span
                .window
                .as_ref()
                .zip(history.as_ref())
                .map(|(window, history)| {
                    let range = window.offset..window.offset + u64::from(window.length);
                    slice(window_bytes, history.start, &range)
                });
            let (filler, progress) = (self.clone(), progress.clone());
            async move {
                // It decodes from the start of a chunk, even if only a later part is wanted.
                let plain = match filler.layer.table().codec.has_plain_stream() {
                    true => span.plain.end - span.plain.start,
                    false => span.plain.end,
                };
                let taken = filler
                    .memory
                    .decode(plain + span.data.end - span.data.start)
                    .await;
                let keep = move || {
                    // Decoding goes on when nobody waits for it any more, and needs its memory until it ends.
                    let _taken = taken;
                    filler.keep(index, &span, &bytes, window.as_deref(), &progress)
                };
                tokio::task::spawn_blocking(keep).await
            }
        });
        for landed in join_all(decodes).await {
            landed.unwrap_or(Err(FillError::Abandoned {
                layer: self.layer.key().layer,
            }))?;
        }
        Ok(())
    }

    async fn read(&self, ask: Ask) -> Result<Fetched, FillError> {
        let progress = ask.progress.clone();
        let whose = match ask.blob {
            Blob::Layer => "",
            Blob::Windows => " of the windows",
        };
        let what = format!("bytes {}..{}{whose}", ask.range.start, ask.range.end);
        let length = ask.range.end - ask.range.start;
        let failed = |error: SourceError| FillError::Fetch {
            layer: self.layer.key().layer,
            what,
            kind: error.kind,
            reason: error.reason,
        };
        let fetched = match self.source.read(ask).await {
            Ok(fetched) => fetched,
            Err(error) => return Err(failed(error)),
        };
        let got = fetched.bytes.len() as u64;
        for (source, bytes) in &fetched.sources {
            progress.received(source, *bytes);
        }
        if got != length {
            return Err(failed(SourceError {
                kind: FaultKind::Wrong,
                reason: format!("{got} bytes came instead of {length}"),
            }));
        }
        FillStats::add(&self.stats.bytes, got);
        Ok(fetched)
    }

    /// Decodes, verifies and writes one span.
    fn keep(
        &self,
        index: usize,
        span: &Span,
        bytes: &[u8],
        window: Option<&[u8]>,
        progress: &Progress,
    ) -> Result<(), FillError> {
        let table = self.layer.table();
        let layer = self.layer.key().layer;
        let plain =
            decode_span(table.codec, span, &table.pieces, bytes, window).map_err(|error: DecodeError| {
                FillError::Wrong {
                    layer,
                    span: index,
                    source_range: span.source.clone(),
                    reason: error.to_string(),
                }
            })?;
        reached(Stage::Verified);
        progress.enter(Phase::Disk);
        let written = self.write(index, &plain);
        progress.enter(Phase::Verify);
        written
    }

    /// Writes a span whose bytes were compared, and counts it.
    pub(super) fn write(&self, index: usize, plain: &[u8]) -> Result<(), FillError> {
        let compared = self
            .layer
            .write_span(index, plain)
            .map_err(|error| FillError::Disk {
                layer: self.layer.key().layer,
                span: index,
                full: matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ),
                reason: error.to_string(),
            })?;
        FillStats::add(&self.stats.spans, 1);
        FillStats::add(&self.stats.bytes_written, plain.len() as u64);
        self.account(index, compared);
        Ok(())
    }
}

/// The part `range` of `bytes`, which start at `start`; empty when it is not inside (the decoder then refuses).
fn slice(bytes: &Bytes, start: u64, range: &Range<u64>) -> Bytes {
    let begin = range
        .start
        .checked_sub(start)
        .and_then(|begin| usize::try_from(begin).ok());
    let end = range
        .end
        .checked_sub(start)
        .and_then(|end| usize::try_from(end).ok());
    match (begin, end) {
        (Some(begin), Some(end)) if begin <= end && end <= bytes.len() => bytes.slice(begin..end),
        _ => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_inside_of_the_bytes_is_empty() {
        let bytes = Bytes::from_static(b"0123456789");
        for (range, part) in [
            (100..110, &b"0123456789"[..]),
            (103..105, b"34"),
            (110..110, b""),
            (99..105, b""),
            (105..111, b""),
            (111..112, b""),
        ] {
            assert_eq!(slice(&bytes, 100, &range), part, "{range:?}");
        }
        let backwards = Range { start: 105, end: 103 };
        assert_eq!(slice(&bytes, 100, &backwards), b""[..]);
    }
}
