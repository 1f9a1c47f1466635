//! Notes which pages of a layer are asked for while services start on it, and by whom.
//!
//! This is on the way of every event, in the one thread that reads them. A layer that no watched start reads costs one
//! load of an atomic; else an event costs a lock and an entry of a list, and, once for each process, a look at its
//! control group, while it waits.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use xebec_format::PAGE_SIZE;

use crate::reading_process::container_of;

/// Entries of one start. One of 10,000 pages that are asked for one by one has as many, neighbours being one; a start that
/// asks for more is known as far as this.
const MAX_ENTRIES: usize = 1 << 16;
/// Processes of one start that are looked at; those after that count as the start's own.
const MAX_PROCESSES: usize = 1 << 13;

/// A run of pages that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The layer's place among those of the start.
    pub layer: u16,
    /// The pages of its data space.
    pub pages: Range<u64>,
    /// When, in milliseconds since the watch began.
    pub at: u32,
    by: u16,
}

/// The process that asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// A process in a container.
    Container(String),
    /// A process outside of all containers: the runtime, or a process of the host that reads the view.
    Outside,
    /// A command that runs another container.
    OtherCommand,
}

/// The pages that are asked for while one service starts.
#[derive(Debug)]
pub struct Watch {
    /// The command that runs it.
    command: u32,
    began: Instant,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    entries: Vec<Asked>,
    is_full: bool,
    processes: HashMap<i32, u16>,
    who: Vec<Who>,
}

/// All notes on a start.
#[derive(Debug, Default)]
pub struct AllAsked {
    /// In the order in which it was asked for.
    pub entries: Vec<Asked>,
    /// Whether more was asked for than is noted.
    pub is_full: bool,
}

impl Watch {
    /// A watch of a start that the command of this process id runs.
    pub fn new(command: u32) -> Self {
        Self {
            command,
            began: Instant::now(),
            noted: Mutex::default(),
        }
    }

    /// The pages that the container asked for, and processes outside of all containers that do not run another one; also those of
    /// all containers if its name is not known. Takes them out.
    pub fn take(&self, container: Option<&str>) -> AllAsked {
        let noted = std::mem::take(&mut *self.noted.lock());
        let is_own = |who: &Who| match who {
            Who::Container(name) => container.is_none_or(|container| container == name),
            Who::Outside => true,
            Who::OtherCommand => false,
        };
        let own: Vec<bool> = noted.who.iter().map(is_own).collect();
        let mut entries = noted.entries;
        entries.retain(|entry| own.get(usize::from(entry.by)).copied().unwrap_or(true));
        AllAsked {
            entries,
            is_full: noted.is_full,
        }
    }

    fn note(&self, layer: u16, event: &Event<'_>) {
        let at = u32::try_from(self.began.elapsed().as_millis()).unwrap_or(u32::MAX);
        let mut noted = self.noted.lock();
        let by = noted.who(event, self.command);
        noted.push(layer, event.pages.clone(), at, by);
    }
}

/// An event, as far as it matters here.
struct Event<'a> {
    pid: i32,
    pages: Range<u64>,
    /// Found out once, however many starts want to know.
    container: &'a OnceCell<Option<String>>,
    /// Commands that run containers on the layer.
    commands: &'a [u32],
}

impl Noted {
    fn who(&mut self, event: &Event<'_>, command: u32) -> u16 {
        if let Some(known) = self.processes.get(&event.pid) {
            return *known;
        }
        if self.processes.len() >= MAX_PROCESSES {
            return u16::MAX;
        }
        let pid = event.pid.unsigned_abs();
        let is_other = pid != command && event.commands.contains(&pid);
        let who = match event.container.get_or_init(|| container_of_process(event.pid)) {
            Some(name) => Who::Container(name.clone()),
            None if is_other => Who::OtherCommand,
            None => Who::Outside,
        };
        let place = self.who.iter().position(|known| *known == who);
        let place = place.unwrap_or_else(|| {
            self.who.push(who);
            self.who.len() - 1
        });
        // There are no more of them than processes.
        let number = u16::try_from(place).unwrap_or(u16::MAX);
        self.processes.insert(event.pid, number);
        number
    }

    fn push(&mut self, layer: u16, pages: Range<u64>, at: u32, by: u16) {
        if pages.is_empty() {
            return;
        }
        if let Some(last) = self.entries.last_mut() {
            let same = (last.layer, last.at, last.by) == (layer, at, by);
            if same && last.pages.end == pages.start {
                last.pages.end = pages.end;
                return;
            }
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.is_full = true;
            return;
        }
        self.entries.push(Asked { layer, pages, at, by });
    }
}

/// The starts that read one layer and are watched.
#[derive(Debug, Default)]
pub struct Watchers {
    any: AtomicBool,
    list: RwLock<Vec<(u16, Arc<Watch>)>>,
}

impl Watchers {
    /// From now on a watch notes the pages that are asked for; the layer has this place in the watch.
    pub fn add(&self, layer: u16, watch: Arc<Watch>) {
        let mut list = self.list.write();
        list.push((layer, watch));
        self.any.store(true, Ordering::Release);
    }

    /// It notes nothing any more.
    pub fn remove(&self, watch: &Arc<Watch>) {
        let mut list = self.list.write();
        list.retain(|(_, known)| !Arc::ptr_eq(known, watch));
        self.any.store(!list.is_empty(), Ordering::Release);
    }

    /// A process asked for bytes.
    pub fn note(&self, pid: i32, bytes: &Range<u64>) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let list = self.list.read();
        let pages = bytes.start / PAGE_SIZE..bytes.end.div_ceil(PAGE_SIZE);
        let commands: Vec<u32> = list.iter().map(|(_, watch)| watch.command).collect();
        let event = Event {
            pid,
            pages,
            container: &OnceCell::new(),
            commands: &commands,
        };
        list.iter().for_each(|(layer, watch)| watch.note(*layer, &event));
    }
}

/// The container that a process is in, by its control group.
fn container_of_process(pid: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    container_of(&groups).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        std::process::id() as i32
    }

    fn note(watchers: &Watchers, pages: Range<u64>) {
        watchers.note(own_pid(), &(pages.start * PAGE_SIZE..pages.end * PAGE_SIZE));
    }

    fn told(asked: &AllAsked) -> Vec<(u16, Range<u64>)> {
        let mut told: Vec<(u16, Range<u64>)> = Vec::new();
        for entry in &asked.entries {
            match told.last_mut() {
                Some((_, last)) if last.end == entry.pages.start => last.end = entry.pages.end,
                _ => told.push((entry.layer, entry.pages.clone())),
            }
        }
        told
    }

    #[test]
    fn what_is_asked_for_is_noted_in_order_until_the_watch_ends() {
        let watchers = Watchers::default();
        note(&watchers, 0..4);
        let (one, other) = (Arc::new(Watch::new(1)), Arc::new(Watch::new(2)));
        watchers.add(0, one.clone());
        watchers.add(7, other.clone());
        note(&watchers, 8..12);
        note(&watchers, 12..13);
        watchers.remove(&one);
        note(&watchers, 3..4);
        assert_eq!(told(&one.take(None)), [(0, 8..13)]);
        assert_eq!(told(&other.take(Some("web"))), [(7, 8..13), (7, 3..4)]);
        assert!(other.take(None).entries.is_empty(), "it was taken out");
    }

    #[test]
    fn another_command_s_own_reads_are_not_the_start_s() {
        let watchers = Watchers::default();
        let (mine, other) = (
            Arc::new(Watch::new(std::process::id())),
            Arc::new(Watch::new(u32::MAX)),
        );
        watchers.add(0, mine.clone());
        watchers.add(0, other.clone());
        note(&watchers, 0..1);
        assert_eq!(mine.take(None).entries.len(), 1);
        assert_eq!(other.take(None).entries.len(), 0);
    }

    #[test]
    fn a_start_that_asks_for_too_much_says_so() {
        let watchers = Watchers::default();
        let watch = Arc::new(Watch::new(1));
        watchers.add(0, watch.clone());
        for page in 0..=MAX_ENTRIES as u64 {
            note(&watchers, 2 * page..2 * page + 1);
        }
        let asked = watch.take(None);
        assert!(asked.is_full && asked.entries.len() == MAX_ENTRIES);
    }
}
