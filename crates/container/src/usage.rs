//! Usage of a container: the counters of its control groups, of version 1 and 2, and of its network.

use std::fs;

use serde::Serialize;

use crate::{Record, RunningError, control_groups};

/// A limit of memory at least this large is none: the kernel shows the largest number of pages (version 1).
const NO_LIMIT: u64 = 1 << 60;

/// Usage of a container at one moment. `None` marks counters that this host does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Processor time since the container's start, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Memory in bytes, without the part of the page cache that was not used lately.
    pub memory: Option<u64>,
    /// The most memory that it may use. `None` also without a limit.
    pub memory_limit: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// The most that it may have. `None` also without a limit.
    pub pids_limit: Option<u64>,
    /// Bytes received and sent by its own network. `None` on the host's network.
    pub network: Option<(u64, u64)>,
    /// Bytes read from disks and written to them.
    pub block: Option<(u64, u64)>,
}

/// The usage of a container now.
///
/// # Errors
/// If the container is not running.
pub fn usage(record: &Record) -> Result<Usage, RunningError> {
    record.running_pid()?;
    let group = record.control_group();
    let usage = Usage {
        network: network(record)?,
        ..of_groups(|file| control_groups::read(&group, file))
    };
    // The files are those of this container: it still runs.
    record.running_pid()?;
    Ok(usage)
}

/// The counters of control groups. `read` returns the contents of a file.
fn of_groups(read: impl Fn(&str) -> Option<String>) -> Usage {
    let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
    let field = |file: &str, name: &str| field(&read(file)?, name);
    let cpu_ns = field("cpu.stat", "usage_usec").map(|micros| micros.saturating_mul(1000));
    let inactive =
        field("memory.stat", "total_inactive_file").or_else(|| field("memory.stat", "inactive_file"));
    let memory = number("memory.current").or_else(|| number("memory.usage_in_bytes"));
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
    Usage {
        // Where both versions are mounted, version 1 has the controllers.
        cpu_ns: number("cpuacct.usage").or(cpu_ns),
        memory: memory.map(|memory| memory.saturating_sub(inactive.unwrap_or_default())),
        memory_limit: limit.filter(|limit| *limit < NO_LIMIT),
        pids: number("pids.current"),
        pids_limit: number("pids.max"),
        network: None,
        block: read("io.stat")
            .map(|text| block_v2(&text))
            .or_else(|| read("blkio.throttle.io_service_bytes").map(|text| block_v1(&text))),
    }
}

/// The number after a name, at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name)?.1.trim().parse().ok()
}

/// `8:0 rbytes=1 wbytes=2 rios=3 …`, a line for each device.
fn block_v2(text: &str) -> (u64, u64) {
    let sum = |name: &str| {
        let words = text.split_whitespace();
        let numbers = words.filter_map(|word| word.strip_prefix(name)?.parse().ok());
        numbers.fold(0, u64::saturating_add)
    };
    (sum("rbytes="), sum("wbytes="))
}

/// `8:0 Read 1`, several lines for each device.
fn block_v1(text: &str) -> (u64, u64) {
    let sum = |name: &str| {
        let numbers = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            words.nth(1).filter(|kind| *kind == name)?;
            words.next()?.parse().ok()
        });
        numbers.fold(0, u64::saturating_add)
    };
    (sum("Read"), sum("Write"))
}

/// The traffic of the container's network, if it is not this process's own.
fn network(record: &Record) -> Result<Option<(u64, u64)>, RunningError> {
    let own = fs::read_link("/proc/self/ns/net").ok();
    let its = fs::read_link(record.proc_file("ns/net")?).ok();
    if its.is_none() || its == own {
        return Ok(None);
    }
    let devices = fs::read_to_string(record.proc_file("net/dev")?).ok();
    Ok(devices.map(|text| traffic(&text)))
}

/// The sums of `/proc/PID/net/dev` without the loopback device: received bytes come first, sent bytes ninth.
fn traffic(text: &str) -> (u64, u64) {
    let mut sums = (0_u64, 0_u64);
    for line in text.lines() {
        let Some((device, counters)) = line.split_once(':') else {
            continue;
        };
        let mut counters = counters.split_whitespace().map(|word| word.parse().unwrap_or(0));
        if device.trim() != "lo" {
            sums.0 = sums.0.saturating_add(counters.next().unwrap_or(0));
            sums.1 = sums.1.saturating_add(counters.nth(7).unwrap_or(0));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Usage {
        let files = files.to_vec();
        of_groups(move |wanted| {
            let file = files.iter().find(|(name, _)| *name == wanted);
            file.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn version_2_is_read() {
        let usage = of(&[
            ("cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n"),
            ("memory.current", "5000\n"),
            (
                "memory.stat",
                "anon 3000\nfile 2000\ninactive_file 1200\ntotal_inactive 7\n",
            ),
            ("memory.max", "max\n"),
            ("pids.current", "3\n"),
            ("pids.max", "100\n"),
            (
                "io.stat",
                "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n254:0 rbytes=5 wbytes=0 rios=1\n",
            ),
        ]);
        let wanted = Usage {
            cpu_ns: Some(1_500_000),
            memory: Some(3800),
            memory_limit: None,
            pids: Some(3),
            pids_limit: Some(100),
            network: None,
            block: Some((15, 20)),
        };
        assert_eq!(usage, wanted);
    }

    #[test]
    fn version_1_is_read() {
        let usage = of(&[
            (
                "cpu.stat",
                "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
            ),
            ("cpuacct.usage", "123456789\n"),
            ("memory.usage_in_bytes", "5000\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("pids.current", "1\n"),
            ("pids.max", "max\n"),
            (
                "blkio.throttle.io_service_bytes",
                "8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:0 Total 30\n9:0 Read 5\nTotal 35\n",
            ),
        ]);
        let wanted = Usage {
            cpu_ns: Some(123_456_789),
            memory: Some(4000),
            memory_limit: None,
            pids: Some(1),
            pids_limit: None,
            network: None,
            block: Some((15, 20)),
        };
        assert_eq!(usage, wanted);
        let limited = of(&[("memory.limit_in_bytes", "536870912\n")]);
        assert_eq!(limited.memory_limit, Some(512 << 20));
    }

    #[test]
    fn what_is_not_counted_is_absent() {
        assert_eq!(of(&[]), Usage::default());
        assert_eq!(
            of(&[("pids.current", "many\n"), ("io.stat", "")]).block,
            Some((0, 0))
        );
    }

    #[test]
    fn traffic_is_that_of_all_devices_but_the_loopback() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n    \
            lo:  100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  \
            eth0: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n  \
            eth1:5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n";
        assert_eq!(traffic(text), (15, 27));
    }
}
