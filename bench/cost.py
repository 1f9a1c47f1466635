"""What a step cost besides time: bytes, packets and requests on the network, processor time by process, room on disk."""

import os
import resource
import time

import bench

TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")


def processor_ms(pid):
    """Of a process and of those of its children that have ended and that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) * TICK_MS


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
        """`groups`: lists of process identifiers, by name."""
        self.link, self.groups = link, groups
        self.requests = bench.Requests()
        self.before = self.look()

    def look(self):
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {f"{name}_cpu_ms": sum(map(processor_ms, pids)) for name, pids in self.groups.items()}
        found["client_cpu_ms"] = (client.ru_utime + client.ru_stime) * 1e3
        return {**found, **self.link.counters()}

    def read(self):
        now = self.look()
        time.sleep(0.05)  # the registry logs an answer after it was sent
        with open(bench.REGISTRY_LOG) as file:
            file.seek(self.requests.mark)
            requests = sum(" HTTP/1.1" in line for line in file)
        return {**{name: now[name] - self.before[name] for name in now}, "requests": requests}
