//! Events as `read(2)` on a group delivers them: a pure, bounds-checked walk over a byte buffer.
//!
//! A buffer holds event after event, each `struct fanotify_event_metadata` followed by information records, of which the range
//! record (`FAN_EVENT_INFO_TYPE_RANGE`) says which bytes are wanted. The walk ends at the end of the buffer or at a zeroed length.
//! So a zeroed buffer with some events in front can be walked without the number of bytes that were read: that is how a successor
//! reads the events that its predecessor left behind.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Size of `struct fanotify_event_metadata`: no event is smaller.
pub const MIN_EVENT_BYTES: usize = 24;

/// `FANOTIFY_METADATA_VERSION`, unchanged since Linux 2.6.37.
const METADATA_VERSION: u8 = 3;

/// `FAN_EVENT_INFO_TYPE_RANGE` of `include/uapi/linux/fanotify.h`.
const INFO_TYPE_RANGE: u8 = 6;

/// Size of `struct fanotify_event_info_header`.
const INFO_HEADER_BYTES: usize = 4;

/// One event: a reader waits until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number of the descriptor that the kernel opened in the reading process; the event's name.
    /// Negative when the event carries none, as a queue overflow does.
    pub number: RawFd,
    /// The event mask.
    pub mask: u64,
    /// The process that reads.
    pub pid: i32,
    /// First byte wanted. 0 when the event has no range.
    pub offset: u64,
    /// Number of bytes wanted; 0 means unknown, which can only be taken as the whole file.
    pub count: u64,
}

impl Event {
    /// True when the kernel says that it dropped events; with an unlimited queue it does not.
    pub fn is_overflow(&self) -> bool {
        self.mask & libc::FAN_Q_OVERFLOW != 0
    }

    /// Owns the descriptor that came with the event.
    ///
    /// # Safety
    /// The event must have been read from a group by this very process, and its descriptor must be neither
    /// closed nor owned elsewhere.
    pub unsafe fn take_descriptor(&self) -> Option<OwnedFd> {
        // SAFETY: the caller promises that the number is an open descriptor that nobody else owns.
        (self.number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(self.number) })
    }
}

/// The buffer holds something that the kernel does not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed fanotify event at byte {at} of the buffer: {problem}")]
pub struct MalformedEvent {
    /// Where the event starts.
    pub at: usize,
    /// The fault, in words.
    pub problem: &'static str,
}

/// Walks the events in a buffer. After an error the walk is over.
#[derive(Debug)]
pub struct Events<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Events<'a> {
    /// Starts at the first byte of `buffer`, which is trimmed to the bytes that were read, or zeroed behind them.
    pub fn new(buffer: &'a [u8]) -> Events<'a> {
        Events { buffer, at: 0 }
    }

    fn parse(&self, rest: &[u8]) -> Result<Option<(Event, usize)>, &'static str> {
        // struct fanotify_event_metadata { __u32 event_len; __u8 vers; __u8 reserved; __u16 metadata_len;
        //                                  __aligned_u64 mask; __s32 fd; __s32 pid; }
        let Some(length) = u32_at(rest, 0) else {
            return Ok(None);
        };
        if length == 0 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| "length out of range")?;
        let whole = rest.get(..length).ok_or("longer than the buffer")?;
        if length < MIN_EVENT_BYTES {
            return Err("shorter than an event can be");
        }
        if whole.get(4) != Some(&METADATA_VERSION) {
            return Err("unknown metadata version");
        }
        let metadata_length = usize::from(u16_at(whole, 6).ok_or("no metadata length")?);
        let mut event = Event {
            mask: u64_at(whole, 8).ok_or("no mask")?,
            number: u32_at(whole, 16).ok_or("no descriptor")?.cast_signed(),
            pid: u32_at(whole, 20).ok_or("no process")?.cast_signed(),
            offset: 0,
            count: 0,
        };
        if metadata_length < MIN_EVENT_BYTES {
            return Err("metadata shorter than it can be");
        }
        let mut records = whole
            .get(metadata_length..)
            .ok_or("metadata longer than the event")?;
        while !records.is_empty() {
            // struct fanotify_event_info_header { __u8 info_type; __u8 pad; __u16 len; }
            let size = usize::from(u16_at(records, 2).ok_or("cut off information record")?);
            if size < INFO_HEADER_BYTES {
                return Err("information record shorter than its header");
            }
            let record = records
                .get(..size)
                .ok_or("information record longer than the event")?;
            if record.first() == Some(&INFO_TYPE_RANGE) {
                // struct fanotify_event_info_range { header; __u32 pad; __u64 offset; __u64 count; }
                event.offset = u64_at(record, 8).ok_or("cut off range")?;
                event.count = u64_at(record, 16).ok_or("cut off range")?;
            }
            records = records.get(size..).unwrap_or_default();
        }
        Ok(Some((event, length)))
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, MalformedEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.buffer.get(self.at..)?;
        match self.parse(rest) {
            Ok(None) => {
                self.at = self.buffer.len();
                None
            }
            Ok(Some((event, length))) => {
                self.at += length;
                Some(Ok(event))
            }
            Err(problem) => {
                let error = MalformedEvent { at: self.at, problem };
                self.at = self.buffer.len();
                Some(Err(error))
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An event as the kernel writes it, with a record of another kind before the range.
    fn encode(event: &Event, other_record: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        if !other_record.is_empty() {
            records.extend([4, 0]);
            records.extend((INFO_HEADER_BYTES as u16 + other_record.len() as u16).to_ne_bytes());
            records.extend(other_record);
        }
        records.extend([INFO_TYPE_RANGE, 0]);
        records.extend(24u16.to_ne_bytes());
        records.extend([0; 4]);
        records.extend(event.offset.to_ne_bytes());
        records.extend(event.count.to_ne_bytes());

        let mut bytes = ((MIN_EVENT_BYTES + records.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([METADATA_VERSION, 0]);
        bytes.extend((MIN_EVENT_BYTES as u16).to_ne_bytes());
        bytes.extend(event.mask.to_ne_bytes());
        bytes.extend(event.number.to_ne_bytes());
        bytes.extend(event.pid.to_ne_bytes());
        bytes.extend(records);
        bytes
    }

    fn any_event() -> impl Strategy<Value = Event> {
        (
            any::<i32>(),
            any::<u64>(),
            any::<i32>(),
            any::<u64>(),
            any::<u64>(),
        )
            .prop_map(|(number, mask, pid, offset, count)| Event {
                number,
                mask,
                pid,
                offset,
                count,
            })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            events in prop::collection::vec((any_event(), prop::collection::vec(any::<u8>(), 0..40)), 0..30),
            zeros in 0usize..200,
        ) {
            let mut bytes: Vec<u8> = events.iter().flat_map(|(event, other)| encode(event, other)).collect();
            bytes.resize(bytes.len() + zeros, 0);
            let read: Result<Vec<Event>, MalformedEvent> = Events::new(&bytes).collect();
            let written: Vec<Event> = events.into_iter().map(|(event, _)| event).collect();
            prop_assert_eq!(read.unwrap(), written);
        }

        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            let read: Vec<_> = Events::new(&bytes).collect();
            prop_assert!(read.len() <= bytes.len() / MIN_EVENT_BYTES + 1);
            prop_assert!(read.iter().rev().skip(1).all(Result::is_ok), "the walk went on after an error");
        }

        #[test]
        fn a_flipped_byte_harms_nothing_before_it(
            events in prop::collection::vec(any_event(), 1..20),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let mut bytes: Vec<u8> = events.iter().flat_map(|event| encode(event, &[])).collect();
            let each = bytes.len() / events.len();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let read: Vec<_> = Events::new(&bytes).map_while(Result::ok).take(at / each).collect();
            prop_assert_eq!(&read[..], &events[..at / each]);
        }
    }

    #[test]
    fn an_event_that_is_cut_off_is_an_error() {
        let event = Event {
            number: 7,
            mask: 1 << 20,
            pid: 1,
            offset: 4096,
            count: 8192,
        };
        let bytes = encode(&event, b"pidfd");
        for length in 4..bytes.len() {
            assert!(
                Events::new(&bytes[..length]).next().unwrap().is_err(),
                "{length} bytes"
            );
        }
        assert_eq!(Events::new(&bytes).next().unwrap(), Ok(event));
    }
}
