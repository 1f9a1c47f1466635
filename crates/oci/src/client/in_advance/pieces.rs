//! Pieces of blobs that a registry sends in advance, in the order in which they come.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use xebec_format::digest::Digest;

use super::answers::Answers;
use crate::error::Fault;
use crate::reference::Repository;

/// Pieces of blobs on their way, one after the other without gaps. Nothing in them is verified.
#[derive(Debug)]
pub struct PiecesInAdvance {
    answers: Arc<Answers>,
    /// The contents that are still to be read.
    contents: VecDeque<usize>,
    places: Vec<(Digest, Range<u64>)>,
}

impl PiecesInAdvance {
    /// Those of `blobs`; `None` if there are none.
    pub(super) fn find(answers: &Arc<Answers>, repository: &Repository, blobs: &[Digest]) -> Option<Self> {
        let (mut contents, mut places) = (VecDeque::new(), Vec::new());
        for (number, digest, pieces) in answers.pieces(repository, blobs) {
            contents.push_back(number);
            // They are bounded by what a head may have, and ascend.
            let ranges = pieces
                .iter()
                .map(|(offset, length)| *offset..offset.saturating_add(*length));
            places.extend(ranges.map(|range| (digest, range)));
        }
        (!places.is_empty()).then(|| Self {
            answers: answers.clone(),
            contents,
            places,
        })
    }

    /// Which bytes of which blob each piece is.
    pub fn places(&self) -> &[(Digest, Range<u64>)] {
        &self.places
    }

    /// The bytes of all pieces. What stands before the last piece that is wanted must be read, too.
    pub fn into_stream(self) -> Pin<Box<dyn Stream<Item = Result<Bytes, Fault>> + Send>> {
        Box::pin(futures_util::stream::unfold(Some(self), |this| async move {
            let mut this = this?;
            match this.next_part().await.transpose()? {
                Ok(part) => Some((Ok(part), Some(this))),
                Err(fault) => Some((Err(fault), None)),
            }
        }))
    }

    async fn next_part(&mut self) -> Result<Option<Bytes>, Fault> {
        while let Some(number) = self.contents.front() {
            let part = self.answers.part(*number).await?;
            if part.is_some() {
                return Ok(part);
            }
            self.contents.pop_front();
        }
        Ok(None)
    }
}

/// What is not read any more need not be kept.
impl Drop for PiecesInAdvance {
    fn drop(&mut self) {
        let left = self.contents.iter();
        left.for_each(|number| self.answers.forget(*number));
    }
}
