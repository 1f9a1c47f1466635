"""Containers of an image that are started at once on several new hosts (DADI, batch start; FlacIO, auto-scaling).

The hosts share one link to one registry, and, here, the processors of this machine, with the registry: with more than a few of
them it is the processors that are measured. Each host has a containerd and a daemon of its own in a network namespace of its
own, and pulls once; each container has a network namespace, too, since they are the same service.
"""

import os
import time

import cost
import starting
from scenarios import base, hosts

HOSTS = int(os.environ.get("BENCH_HOSTS", 2 if base.SMALL else 4))
TIMEOUT_S = 600
COUNTS = [1, 4] if base.SMALL else [1, 2, 4, 8, 16, 32]


class Batch(base.Scenario):
    """containers started at once on several hosts, until the last one is ready"""

    name, variable, networks, settings = "batch", "containers", "1000", {"hosts": HOSTS}
    figures = [
        ("last_ms", "last", "ms", 1), ("first_ms", "first", "ms", 1), ("pulled_ms", "last pull", "ms", 1),
        ("rx_bytes", "received", "MB", 1e6), ("registry_cpu_ms", "processor: registry", "ms", 1),
        ("daemon_cpu_ms", "daemons", "", 1), ("containerd_cpu_ms", "containerds", "", 1),
    ]

    def missing(self, subject):
        return "it ends by itself" if subject.task.ends else None

    def variables(self):
        return [[count] for count in COUNTS]

    def measure(self, system, subject, made, group):
        count = group[0]
        number = min(count, HOSTS)
        # All share one link, and few processors.
        timeout_s = max(TIMEOUT_S, number * self.patience_s(subject))
        order = {"image": subject.name, "version": subject.version, "reference": made, "timeout_s": timeout_s}
        with hosts.running(system, number) as (each, said), hosts.namespaces(f"container{at}" for at in range(count)) as paths:
            os.sync()
            # Each once: who looks for a daemon by its program finds those of all hosts.
            daemons = {pid for one in said for pid in one["daemon"]}
            meter = cost.Meter(starting.LINK, {
                "containerd": lambda: [one["containerd"] for one in said],
                "daemon": lambda: daemons,
                "registry": lambda: [int(os.environ["BENCH_REGISTRY_PID"])],
            })
            began = time.monotonic()
            for at, host in enumerate(each):
                host.ask({**order, "namespaces": paths[at::number]})
            answers = [host.answer() for host in each]
            daemons.update(pid for answer in answers for pid in answer["daemon"])  # some have one for each image
            found = meter.read()
            found["disk_bytes"] = sum(cost.disk_bytes(host.scratch) for host in each)
        del found["client_cpu_ms"]  # hosts have clients of their own
        least = number * (subject.size * starting.LEAST_PART if system.is_full else starting.LEAST_BYTES)
        if found["rx_bytes"] < least:
            raise RuntimeError(f"{number} cold hosts moved {found['rx_bytes']} bytes, less than {least:.0f}: they were not cold")
        ready = sorted(time for answer in answers for time in answer["ready"])
        if len(ready) != count:
            raise RuntimeError(f"{len(ready)} containers are ready, not {count}")
        ms = lambda moment: (moment - began) * 1e3
        return {count: {
            "last_ms": ms(ready[-1]), "first_ms": ms(ready[0]), "middle_ms": ms(ready[len(ready) // 2]),
            "pulled_ms": ms(max(answer["pulled"] for answer in answers)), "hosts": number, **found,
        }}
