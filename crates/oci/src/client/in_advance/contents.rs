//! Contents of a start answer as they come, each kept until it is asked for, as far as there is room.

use std::collections::VecDeque;
use std::ops::ControlFlow::{self, Break, Continue};

use bytes::Bytes;

/// The most that is kept of contents, in bytes.
pub(super) const MAX_KEPT: usize = 64 << 20;
/// A part of fewer bytes is copied: by itself it would keep the whole buffer that it came in.
const SMALL: usize = 16 << 10;

/// All contents of an answer.
#[derive(Debug)]
pub(super) struct Contents {
    /// In the order of the head.
    all: Vec<Coming>,
    /// The one to which the next bytes belong.
    next: usize,
    /// How many bytes are kept.
    kept: usize,
    /// How many may be.
    most: usize,
    /// How many have come.
    came: u64,
}

/// A content, as far as it has come and was not taken.
#[derive(Debug, Default)]
struct Coming {
    /// How many bytes are still to come.
    missing: u64,
    parts: VecDeque<Bytes>,
    /// Small parts that came after these.
    last: Vec<u8>,
    /// How many bytes these have.
    kept: usize,
    /// Somebody waits for it.
    is_wanted: bool,
    /// It was taken or given up, or there was no room for it.
    is_gone: bool,
}

impl Contents {
    /// Contents of these sizes, of which so many bytes are kept at most.
    pub(super) fn new(sizes: impl Iterator<Item = u64>, most: usize) -> Self {
        let coming = |missing| Coming {
            missing,
            ..Coming::default()
        };
        Self {
            all: sizes.map(coming).collect(),
            next: 0,
            kept: 0,
            most,
            came: 0,
        }
    }

    /// How many bytes have come.
    pub(super) fn came(&self) -> u64 {
        self.came
    }

    /// All of a content, once; what has come of it, while it comes.
    pub(super) fn whole(&mut self, number: usize) -> ControlFlow<Option<Bytes>, u64> {
        let Some(content) = self.all.get_mut(number).filter(|content| !content.is_gone) else {
            return Break(None);
        };
        content.is_wanted = true;
        if content.missing > 0 {
            // All of it fits: sizes of contents that are taken whole are limited.
            return Continue(content.kept as u64);
        }
        content.close_last();
        let whole = match content.parts.pop_front() {
            Some(first) if content.parts.is_empty() => first,
            first => {
                let parts: Vec<Bytes> = first.into_iter().chain(content.parts.drain(..)).collect();
                parts.concat().into()
            }
        };
        self.forget(number);
        Break(Some(whole))
    }

    /// The next part of a content, `None` at its end; what has come of all, while it comes.
    pub(super) fn part(&mut self, number: usize) -> ControlFlow<Option<Option<Bytes>>, u64> {
        let Some(content) = self.all.get_mut(number).filter(|content| !content.is_gone) else {
            return Break(None);
        };
        content.is_wanted = true;
        if content.parts.is_empty() {
            content.close_last();
        }
        let part = content.parts.pop_front();
        match &part {
            None if content.missing > 0 => return Continue(self.came),
            None => self.forget(number),
            Some(part) => {
                content.kept -= part.len();
                self.kept -= part.len();
            }
        }
        Break(Some(part))
    }

    /// Keeps nothing of a content, now and later.
    pub(super) fn forget(&mut self, number: usize) {
        if let Some(content) = self.all.get_mut(number) {
            self.kept -= content.kept;
            *content = Coming {
                missing: content.missing,
                is_gone: true,
                ..Coming::default()
            };
        }
    }

    /// Puts bytes to the contents that they belong to; whether all is here, and what follows belongs to nothing.
    pub(super) fn take_in(&mut self, mut bytes: Bytes) -> bool {
        let buffer = bytes.len();
        self.came += buffer as u64;
        while let Some(content) = self.all.get_mut(self.next) {
            if bytes.is_empty() && content.missing > 0 {
                return false;
            }
            let missing = usize::try_from(content.missing).unwrap_or(usize::MAX);
            let part = bytes.split_to(bytes.len().min(missing));
            content.missing -= part.len() as u64;
            self.next += usize::from(content.missing == 0);
            if !content.is_gone {
                content.kept += part.len();
                self.kept += part.len();
                content.add(part, buffer);
                self.make_room();
            }
        }
        true
    }

    /// Throws contents away while there is too much: the largest that nobody waits for, or else the largest.
    fn make_room(&mut self) {
        while self.kept > self.most {
            let size = |content: &Coming| (!content.is_wanted && content.kept > 0, content.kept);
            let largest = (0..).zip(&self.all).max_by_key(|(_, content)| size(content));
            let Some((number, _)) = largest else { return };
            self.forget(number);
        }
    }
}

impl Coming {
    /// Adds a part of a buffer of that length.
    fn add(&mut self, part: Bytes, buffer: usize) {
        if part.len() < SMALL || part.len() < buffer / 2 {
            self.last.extend_from_slice(&part);
        } else {
            self.close_last();
            self.parts.push_back(part);
        }
    }

    fn close_last(&mut self) {
        if !self.last.is_empty() {
            self.parts.push_back(std::mem::take(&mut self.last).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(contents: &mut Contents, bytes: &[u8]) -> bool {
        let sent = bytes
            .chunks(7)
            .map(|part| contents.take_in(Bytes::copy_from_slice(part)));
        sent.last() == Some(true)
    }

    #[test]
    fn contents_are_taken_once_as_they_were_sent() {
        let mut contents = Contents::new([3, 0, 10, 5].into_iter(), 1000);
        assert!(!send(&mut contents, b"abc0123456"));
        assert_eq!(contents.whole(2), Continue(7));
        assert_eq!(contents.whole(1), Break(Some(Bytes::new())));
        assert_eq!(contents.part(3), Continue(10));
        contents.forget(3);
        assert!(send(&mut contents, b"789later, and what belongs to nothing"));
        assert_eq!(contents.whole(0), Break(Some("abc".into())));
        assert_eq!(contents.whole(2), Break(Some("0123456789".into())));
        assert_eq!(contents.whole(2), Break(None));
        assert_eq!(contents.part(3), Break(None));
        assert_eq!(contents.kept, 0);
    }

    #[test]
    fn what_nobody_asks_for_is_kept_within_bounds() {
        let (most, tiny) = (1000, 200);
        let mut contents = Contents::new((0..tiny).map(|_| 3).chain([900, 700, 5000]), most);
        for _ in 0..tiny {
            send(&mut contents, b"abc");
        }
        assert_eq!(contents.kept, 600);
        // One goes for each that is too much, and it is the largest: many small ones would have to go for it.
        assert_eq!(contents.whole(201), Continue(0));
        for sent in [900, 700, 5000] {
            send(&mut contents, &vec![b'x'; sent]);
            assert!(
                contents.kept <= most
                    && contents.all.iter().map(|one| one.kept).sum::<usize>() == contents.kept
            );
        }
        assert_eq!(contents.whole(200), Break(None));
        assert_eq!(contents.whole(0), Break(Some("abc".into())));
        assert_eq!(
            contents.all.iter().filter(|one| !one.is_gone).count(),
            contents.all.iter().filter(|one| one.kept > 0).count()
        );
    }

    /// A slice of a buffer keeps the whole buffer.
    #[test]
    fn small_parts_keep_no_buffers() {
        let buffer = Bytes::from(vec![1; 8 * SMALL]);
        let mut contents = Contents::new([10, 2 * SMALL as u64, 8 * SMALL as u64].into_iter(), usize::MAX);
        contents.take_in(buffer.clone());
        let range = buffer.as_ptr_range();
        let is_in = |part: &Bytes| range.contains(&part.as_ptr());
        for number in [0, 1] {
            let Break(Some(whole)) = contents.whole(number) else {
                panic!("it is here");
            };
            assert!(!is_in(&whole));
        }
        assert!(matches!(contents.part(2), Break(Some(Some(part))) if is_in(&part)));
    }
}
