"""What a step cost besides time: bytes, packets and requests on the network, processor time by process, memory, room on disk."""

import os
import resource
import time

import bench

CGROUPS = "/sys/fs/cgroup"
TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")


def processor_ms(pid):
    """Of a process and of those of its children that have ended and that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = file.read().rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    return sum(map(int, ticks)) * TICK_MS


def fields(path):
    """Numbers by name, as the kernel writes them: a line each, with a colon or without, maybe with a unit."""
    try:
        with open(path) as file:
            words = [line.split() for line in file]
    except OSError:
        return {}
    return {row[0].rstrip(":"): int(row[1]) for row in words if len(row) > 1 and row[1].isdigit()}


def anonymous_bytes(pids):
    """Memory that is no file's."""
    return sum(fields(f"/proc/{pid}/status").get("RssAnon", 0) * 1024 for pid in pids)


def host_cache_bytes():
    """The page cache of the whole machine, without what lies in memory only."""
    found = fields("/proc/meminfo")
    return (found["Cached"] - found["Shmem"]) * 1024


def container(namespace, name):
    """What the control group of a container that `ctr` has made was charged so far: the page cache goes to who first asked
    for a page. What this kernel does not count is left out."""
    group = f"{namespace}/{name}"
    if os.path.exists(os.path.join(CGROUPS, "cgroup.controllers")):
        memory, names = fields(f"{CGROUPS}/{group}/memory.stat"), ("file", "anon")
        processor = fields(f"{CGROUPS}/{group}/cpu.stat").get("usage_usec")
        processor = processor / 1e3 if processor is not None else None
    else:
        memory, names = fields(f"{CGROUPS}/memory/{group}/memory.stat"), ("total_cache", "total_rss")
        processor = nanoseconds(f"{CGROUPS}/cpuacct/{group}/cpuacct.usage")
    found = {"cache_bytes": memory.get(names[0]), "anonymous_bytes": memory.get(names[1]), "container_cpu_ms": processor}
    return {name: value for name, value in found.items() if value is not None}


def nanoseconds(path):
    """As milliseconds."""
    try:
        with open(path) as file:
            return int(file.read()) / 1e6
    except OSError:
        return None


def disk_bytes(top):
    """Blocks of what is below a directory, on the same file system, each file once."""
    total, seen, device = 0, set(), None
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            try:
                state = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            device = state.st_dev if device is None else device
            if state.st_dev != device or state.st_ino in seen:
                continue
            seen.add(state.st_ino)
            total += state.st_blocks * 512
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return total


class Meter:
    """Counts from when it is made until `read`."""

    def __init__(self, link, groups):
        """`groups`: by name, what gives the identifiers of processes; those that come later count as well."""
        self.link, self.groups = link, groups
        self.requests = bench.Requests()
        self.before = self.look()

    def look(self):
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {f"{name}_cpu_ms": sum(map(processor_ms, pids())) for name, pids in self.groups.items()}
        found["client_cpu_ms"] = (client.ru_utime + client.ru_stime) * 1e3
        return {**found, **self.link.counters(), "host_cache_bytes": host_cache_bytes()}

    def read(self):
        now = self.look()
        time.sleep(0.05)  # the registry logs an answer after it was sent
        with open(bench.REGISTRY_LOG) as file:
            file.seek(self.requests.mark)
            requests = sum(" HTTP/1.1" in line for line in file)
        found = {name: now[name] - self.before[name] for name in now}
        # The page cache may have shrunk; everything else only grows, but the time of processes that have ended is gone.
        found = {name: grown if name == "host_cache_bytes" else max(0, grown) for name, grown in found.items()}
        return {**found, "requests": requests}
